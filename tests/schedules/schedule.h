// A schedule: what the threads of a program do to the storages of one or two
// sessions, under which limits, all drawn from one seed.
//
// The steps stand in one order, which is a possible execution. Two steps that
// conflict happen in this order, whichever threads issue them; all others at
// any time. So the value that every read must find is known.
#ifndef TESTS_SCHEDULES_SCHEDULE_H_
#define TESTS_SCHEDULES_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace djinn::schedules {

enum class Action {
  kNew,          // a storage of `count` floats, or a generator (`count` 0)
  kFill,         // storage[offset : offset + count] = value
  kAddValue,     // storage += value; such steps commute
  kAddTensor,    // storage[: count] += operand[: count]
  kAdd,          // storage = operand[: count] + other[: count]
  kAlias,        // storage = operand, by an operator that returns its operand
  kDraw,         // storage = `count` numbers of the generator `operand`
  kNonzero,      // storage = where operand is not 0; waits
  kFail,         // storage = operand, by an operator that fails
  kThrow,        // likewise, that throws
  kWrongShape,   // likewise, whose result is not as inferred
  kRefused,      // likewise, that admission refuses; alone in its run
  kFailInPlace,  // an operator that fails after writing to storage
  kSeed,         // the generator `storage` starts with number `value`
  kUpload,       // storage gets content number `value`
  kCopy,         // storage = operand, of the session's other device
  kResize,       // storage has `count` floats
  kRead,         // storage[offset : : stride], `count` of them
  kDrop,         // the last handle of storage goes
  kSynchronize,
  kPlacement,
  // Ends of a session or a device; what comes later fails.
  kRestart,   // of the worker; `value`: 0 it crashes, 1 it drains
  kEndLease,  // by the coordinator
  kUnplug,    // the device's worker can no more be reached
  kClose,     // of the device's session; `value`: milliseconds it may take
};

struct Step {
  Action action;
  int thread = 0;
  int device = 0;
  int storage = -1;
  int operand = -1;
  int other = -1;
  int64_t offset = 0;
  int64_t count = 0;
  int64_t stride = 1;
  int64_t value = 0;
};

// How much memory the sessions have.
enum class Memory {
  kAmple,
  // As much as uploads need when what was dropped before them is gone.
  kTight,
  // Too little: anything may be refused or poisoned by it.
  kScarce,
};

// What goes wrong on one of a device's streams to its worker.
struct Fault {
  int device = 0;
  int stream = 0;  // from 0
  // The connection cannot be made.
  bool refused = false;
  // It breaks at a message or chunk: the `message`-th that the client sends
  // (`up`) or gets, before it or after it.
  bool breaks = false;
  bool up = false;
  int message = 0;
  bool after = false;
  // The client notices this much later, in turns of other threads.
  int client_notices_after = 0;
  // The worker notices only by a newer stream or at the end.
  bool worker_notices_late = false;
  // How late messages from the worker are.
  int late_turns = 0;
};

struct Setup {
  int threads = 1;
  // Of each device: its session.
  std::vector<int> sessions = {0};
  bool two_tenants = false;
  Memory memory = Memory::kAmple;
  uint64_t memory_bytes = uint64_t{1} << 30;
  // Devices may use the memory several times over, as they may several workers.
  bool spans = false;
  uint32_t max_outstanding = 64;
  uint64_t max_outstanding_bytes = uint64_t{1} << 20;
  // Of all sessions of a tenant together.
  uint32_t tenant_outstanding = 64;
  uint32_t max_graphs = 64;
  size_t max_plans = 64;
  // Messages and chunks under way in each direction.
  size_t in_flight = 256;
  // Every so many nodes one takes a while; 0: none.
  int slow_every = 0;
  // Ends with Close() alone, without reading everything back first.
  bool close_at_once = false;
  // Something may go wrong, so that a session's end at the coordinator may be
  // all that the worker hears of it.
  bool faulty = false;
  std::vector<Fault> faults;
  // Whether a worker that restarted knows the leases again.
  bool grants_again = false;
};

struct Schedule {
  uint64_t seed = 0;
  Setup setup;
  std::vector<Step> steps;
  int storages = 0;
};

enum class Faults { kNone, kSome };
// `spans`: so little memory that devices begin to span.
Schedule DrawSchedule(uint64_t seed, Faults faults, bool spans = false);

// The step ends a device or more; nothing after it is certain.
bool EndsDevices(Action action);

// How a step uses a storage.
enum class Use {
  kNone,
  kReads,
  kAdds,  // commutes with its like
  kExclusive
};
Use UseOf(const Step& step, int storage);
// Whether the two must happen in their order.
bool Conflict(const Schedule& schedule, const Step& a, const Step& b);

std::string ToText(const Step& step);
std::string ToText(const Schedule& schedule);

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_SCHEDULE_H_
