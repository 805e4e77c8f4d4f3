// Describes a schedule: what the threads of a program do to the storages of one
// or two sessions, and under which limits. Everything is drawn from one seed.
//
// The order of the steps is one possible execution. Two steps that conflict are
// executed in this order, even in different threads; other steps may be
// executed in any order. The value of every read is therefore known.
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
  kNonzero,      // storage = indices where operand is not 0; waits
  kFail,         // storage = operand, by an operator that fails
  kThrow,        // the same, by an operator that throws
  kWrongShape,   // the same, by an operator whose result is not as inferred
  kRefused,      // the same, refused at admission; alone in its run
  kFailInPlace,  // an operator that fails after writing to storage
  kSeed,         // the generator `storage` starts with number `value`
  kUpload,       // storage gets content number `value`
  kCopy,         // storage = operand, of the session's other device
  kResize,       // storage has `count` floats
  kRead,         // storage[offset : : stride], `count` of them
  kDrop,         // releases the last handle of storage
  kSynchronize,
  kPlacement,
  kCheckpoint,  // of the device's session
  kLose,        // the worker crashes; sessions go on at the next one
  kLoseLease,   // the coordinator ends the device's lease, as if another
                // session had ended the executor; the device goes on with
                // another lease
  // The following steps end a session or a device; later steps fail.
  kRestart,   // the worker crashes (`value` 0) or drains (1)
  kEndLease,  // the coordinator ends the lease
  kUnplug,    // the device's worker becomes unreachable
  kClose,     // closes the device's session in `value` milliseconds
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

// The amount of memory that the sessions have.
enum class Memory {
  kAmple,
  // Enough for uploads once the storages dropped before are gone.
  kTight,
  // Too little: any call may be refused or poisoned for lack of memory.
  kScarce,
};

// A fault of one of a device's streams to its worker.
struct Fault {
  int device = 0;
  int stream = 0;  // from 0
  // The connection cannot be made.
  bool refused = false;
  // True if the connection breaks at a message or chunk: before or after the
  // `message`-th one that the client sends (if `up`) or receives.
  bool breaks = false;
  bool up = false;
  int message = 0;
  bool after = false;
  // The client notices the break later, by so many turns of other threads.
  int client_notices_after = 0;
  // The worker notices the break only by a newer stream or at the end.
  bool worker_notices_late = false;
  // Messages from the worker are late by so many turns of other threads.
  int late_turns = 0;
};

struct Setup {
  int threads = 1;
  // The session of each device.
  std::vector<int> sessions = {0};
  bool two_tenants = false;
  Memory memory = Memory::kAmple;
  uint64_t memory_bytes = uint64_t{1} << 30;
  // True if devices may become multi-worker devices. They then use the memory
  // several times over.
  bool spans = false;
  // The memory that clients believe a worker to have, if it is not 0: so little
  // that they use several workers, although no worker refuses anything.
  uint64_t told_memory_bytes = 0;
  // The number of workers that a device asks for.
  int workers = 1;
  uint32_t max_outstanding = 64;
  uint64_t max_outstanding_bytes = uint64_t{1} << 20;
  // Limits the messages of all sessions of a tenant together.
  uint32_t tenant_outstanding = 64;
  uint32_t max_graphs = 64;
  size_t max_plans = 64;
  // Messages and chunks in flight in each direction.
  size_t in_flight = 256;
  // Every slow_every-th node takes a while; with 0, none does.
  int slow_every = 0;
  // The schedule ends with Close() at once, without reading everything back.
  bool close_at_once = false;
  // True if faults may occur, so that the worker may learn only from the
  // coordinator that a session has ended.
  bool faulty = false;
  std::vector<Fault> faults;
  // The coordinator announces the leases to a restarted worker.
  bool grants_again = false;
  // Devices recover from the loss of their worker.
  bool recovers = false;
  // The worker says that it executes each tenant's messages in a process of its
  // own. Its end makes no run suspect enough to be given up.
  bool executors = false;
  // Not negative if devices make checkpoints: the microseconds between them.
  int checkpoint_micros = -1;
  // Little memory: values are asked for one by one, or have no room.
  uint64_t checkpoint_memory = uint64_t{4} << 30;
  // Little memory: uploads go to a file, and checkpoints cut what is kept.
  uint64_t replay_memory = uint64_t{256} << 20;
};

struct Schedule {
  uint64_t seed = 0;
  Setup setup;
  std::vector<Step> steps;
  int storages = 0;
};

enum class Faults {
  kNone,
  kSome,
  // Workers are lost, and connections break; the sessions recover.
  kLosses,
};
// Draws a schedule. If `spans`, memory is so scarce that devices become
// multi-worker devices.
Schedule DrawSchedule(uint64_t seed, Faults faults, bool spans = false);

// Returns whether the step ends one or more devices, so that the outcome of
// later steps is uncertain.
bool EndsDevices(Action action);

// The way in which a step uses a storage.
enum class Use {
  kNone,
  kReads,
  kAdds,  // commutes with other kAdds
  kExclusive
};
Use UseOf(const Step& step, int storage);
// Returns whether the two steps must happen in their order.
bool Conflict(const Schedule& schedule, const Step& a, const Step& b);

std::string ToText(const Step& step);
std::string ToText(const Schedule& schedule);

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_SCHEDULE_H_
