// Draws schedules. The steps so far determine which steps are possible next.
#include <algorithm>
#include <random>

#include "tests/schedules/schedule.h"

namespace djinn::schedules {
namespace {

// The largest value inside a message, in floats; see the cluster's limits.
constexpr int64_t kInlineFloats = 2048;

class Drawer {
 public:
  Drawer(uint64_t seed, Faults faults, bool spans)
      : faults_(faults != Faults::kNone),
        losses_(faults == Faults::kLosses),
        spans_(spans),
        random_(seed) {
    schedule_.seed = seed;
  }

  Schedule Draw() {
    DrawSetup();
    const int steps = Between(3, 45);
    const int end =
        faults_ && !losses_ && OneIn(3) ? Between(0, steps - 1) : -1;
    // Draws no copies if a device ends, because it is uncertain whether a copy
    // outlives its source's device.
    copies_ = end < 0 && setup().sessions == std::vector{0, 0};
    while (static_cast<int>(schedule_.steps.size()) < steps) {
      DrawStep();
      if (static_cast<int>(schedule_.steps.size()) == end) DrawEnd();
      if (losses_ && OneIn(12)) DrawLoss();
    }
    if (faults_ && (!losses_ || OneIn(3))) DrawFaults();
    if (setup().memory == Memory::kTight) {
      setup().memory_bytes = std::max<uint64_t>(most_, 1);
    } else if (setup().memory == Memory::kScarce) {
      setup().memory_bytes = Between(64, 40000);
    }
    return std::move(schedule_);
  }

 private:
  struct Storage {
    int device;
    int64_t count;
    bool live = true;
    bool generator = false;
    bool seeded = false;
    // The player alone learns the count.
    bool unknown_count = false;
    // Has bytes on the worker that count towards tight memory.
    bool charged = false;
  };

  Setup& setup() { return schedule_.setup; }

  int Between(int least, int most) {
    return least + static_cast<int>(random_() % (most - least + 1));
  }
  bool OneIn(int n) { return random_() % n == 0; }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  void DrawSetup() {
    setup().threads = Between(1, 3);
    if (OneIn(3))
      setup().sessions = OneIn(2) ? std::vector{0, 0} : std::vector{0, 1};
    setup().two_tenants = OneIn(4);
    const int memory = Between(0, 7);
    setup().memory = memory == 0   ? Memory::kScarce
                     : memory == 1 ? Memory::kTight
                                   : Memory::kAmple;
    if (spans_) setup().memory = Memory::kScarce;
    // A run that lacks memory on one worker might find enough on the next, so
    // its result would not be determined.
    if (losses_) setup().memory = Memory::kAmple;
    setup().recovers = losses_;
    setup().executors =
        losses_ && !setup().two_tenants && schedule_.seed % 4 < 2;
    if (losses_ && spans_) {
      setup().told_memory_bytes =
          Pick<uint64_t>({64, 200, 500, 1000, 3000, 10'000, 30'000});
      setup().workers = Between(2, 3);
    }
    if (losses_ && schedule_.seed % 2 == 0) {
      setup().checkpoint_micros = Pick({0, 0, 100, 2000, 10'000'000});
      setup().checkpoint_memory =
          Pick<uint64_t>({1 << 30, 1 << 30, 100'000, 300'000});
    }
    if (losses_ && schedule_.seed % 3 == 0) setup().replay_memory = 128 << 10;
    setup().spans = spans_;
    setup().max_outstanding = Pick<uint32_t>({1, 2, 3, 8, 64});
    setup().max_outstanding_bytes = Pick<uint64_t>({10000, 20000, 1 << 20});
    setup().tenant_outstanding = Pick<uint32_t>({1, 2, 3, 64});
    setup().max_graphs = Pick<uint32_t>({1, 2, 3, 64});
    setup().max_plans = Pick<size_t>({1, 1, 2, 64});
    setup().in_flight = Pick<size_t>({1, 2, 5, 256});
    setup().slow_every = Pick({0, 0, 2, 5});
    setup().close_at_once = OneIn(3);
    huge_ = OneIn(faults_ ? 40 : 150);
    setup().faulty = faults_;
    setup().grants_again = OneIn(2);
  }

  void DrawFaults() {
    for (size_t device = 0; device < setup().sessions.size(); ++device) {
      const int streams = Between(0, 4);
      for (int stream = 0; stream < streams; ++stream) {
        Fault fault;
        fault.device = static_cast<int>(device);
        fault.stream = stream;
        fault.refused = OneIn(5);
        fault.breaks = !OneIn(6);
        fault.up = OneIn(2);
        fault.message = OneIn(3) ? Between(0, 2) : Between(0, 20);
        fault.after = OneIn(2);
        fault.client_notices_after = OneIn(3) ? Between(1, 200) : 0;
        fault.worker_notices_late = OneIn(3);
        fault.late_turns = OneIn(5) ? Between(1, 20) : 0;
        setup().faults.push_back(fault);
      }
    }
  }

  void DrawEnd() {
    Step step{};
    step.thread = Between(0, setup().threads - 1);
    step.device = Between(0, static_cast<int>(setup().sessions.size()) - 1);
    step.action = Pick(
        {Action::kRestart, Action::kEndLease, Action::kUnplug, Action::kClose});
    if (step.action == Action::kRestart) step.value = Between(0, 1);
    if (step.action == Action::kClose) step.value = Pick({0, 1, 20000});
    schedule_.steps.push_back(step);
  }

  void DrawLoss() {
    Step step{};
    step.action = OneIn(3) ? Action::kLoseLease : Action::kLose;
    step.thread = Between(0, setup().threads - 1);
    step.device = Between(0, static_cast<int>(setup().sessions.size()) - 1);
    if (spans_) step.value = Between(0, 2);
    schedule_.steps.push_back(step);
  }

  int64_t DrawCount() {
    if (huge_ && OneIn(6)) return 262144 * Between(1, 2) + Between(1, 5000);
    return OneIn(5) ? Between(kInlineFloats + 1, 6000) : Between(1, 40);
  }

  // Returns a live storage of the device that holds floats; -1 if there is
  // none.
  int PickTensor(int device) {
    return PickStorage([&](const Storage& s) {
      return s.device == device && !s.generator && !s.unknown_count;
    });
  }
  template <typename Fits>
  int PickStorage(Fits fits) {
    std::vector<int> found;
    for (size_t i = 0; i < storages_.size(); ++i) {
      if (storages_[i].live && fits(storages_[i])) found.push_back(i);
    }
    return found.empty() ? -1 : found[random_() % found.size()];
  }
  int Add(int device, int64_t count) {
    storages_.push_back({device, count});
    return schedule_.storages++;
  }

  void DrawStep() {
    Step step{};
    step.thread = Between(0, setup().threads - 1);
    step.device = Between(0, static_cast<int>(setup().sessions.size()) - 1);
    const bool drawn =
        setup().memory == Memory::kTight ? DrawTight(&step) : DrawAny(&step);
    if (drawn) schedule_.steps.push_back(step);
  }

  bool DrawNew(Step* step) {
    step->action = Action::kNew;
    const bool generator = OneIn(6) && setup().memory == Memory::kAmple;
    step->count = generator ? 0 : DrawCount();
    step->storage = Add(step->device, step->count);
    storages_.back().generator = generator;
    return true;
  }

  // Draws a step for tight memory. Only uploads take memory there, and only
  // uploads to storages that have none yet.
  bool DrawTight(Step* step) {
    const int kind = Between(0, 9);
    if (kind < 2) {
      step->action = Action::kNew;
      step->count = Between(kInlineFloats + 1, 6000);
      step->storage = Add(step->device, step->count);
      return true;
    }
    if (kind < 6) {
      step->storage = PickTensor(step->device);
      if (step->storage < 0) return false;
      Storage& storage = storages_[step->storage];
      if (!storage.charged) {
        storage.charged = true;
        charged_[step->device] += storage.count * sizeof(float);
        most_ = std::max(most_, charged_[step->device]);
      }
      return SetUpload(step);
    }
    step->storage = PickStorage([&](const Storage& s) {
      return s.device == step->device && s.charged;
    });
    if (step->storage < 0) return false;
    Storage& storage = storages_[step->storage];
    switch (kind) {
      case 6:
        return SetRead(step);
      case 7:
        step->action = Action::kAddValue;
        step->value = Between(1, 9);
        return true;
      default:
        charged_[step->device] -= storage.count * sizeof(float);
        return SetDrop(step);
    }
  }

  bool DrawAny(Step* step) {
    if (copies_ && OneIn(6)) return DrawCopy(step);
    const int kind = Between(0, 27);
    if (kind < 3) return DrawNew(step);
    if (kind == 3) {
      step->action = OneIn(4) ? Action::kPlacement : Action::kSynchronize;
      if (setup().checkpoint_micros >= 0 && OneIn(2)) {
        step->action = Action::kCheckpoint;
      }
      return true;
    }
    if (kind == 4) return DrawSeed(step);
    if (kind == 5) return DrawDraw(step);
    step->storage = PickTensor(step->device);
    if (step->storage < 0) return DrawNew(step);
    Storage& storage = storages_[step->storage];
    switch (kind) {
      case 6:
      case 7:
      case 8:
        step->action = Action::kFill;
        // The operator is declared to overwrite its operand, although it may
        // fill only a part. A multi-worker device treats this as a write of the
        // whole storage, and so does the lineage.
        if (spans_ || losses_) {
          step->count = storage.count;
        } else {
          SetRange(step, storage.count);
        }
        step->value = Between(0, 9);
        return true;
      case 9:
      case 10:
      case 11:
      case 12:
        step->action = Action::kAddValue;
        step->value = Between(1, 9);
        return true;
      case 13:
        step->action = Action::kAddTensor;
        step->operand = PickTensor(step->device);
        step->count = std::min(storage.count, storages_[step->operand].count);
        return true;
      case 14:
      case 15:
        step->action = Action::kAdd;
        step->operand = PickTensor(step->device);
        step->other = PickTensor(step->device);
        step->count = std::min(storages_[step->operand].count,
                               storages_[step->other].count);
        step->storage = Add(step->device, step->count);
        return true;
      case 16:
        return SetUnary(step);
      case 17:
      case 18:
      case 19:
        return SetUpload(step);
      case 20:
        step->action = Action::kResize;
        step->count = storage.count = DrawCount();
        return true;
      case 21:
      case 22:
      case 23:
        return SetRead(step);
      case 24:
        step->storage = PickStorage([&](const Storage& s) {
          return s.device == step->device && s.unknown_count;
        });
        if (step->storage < 0) return false;
        step->action = Action::kRead;  // of the whole storage
        return true;
      default:
        step->storage = PickStorage(
            [&](const Storage& s) { return s.device == step->device; });
        return SetDrop(step);
    }
  }

  bool DrawSeed(Step* step) {
    step->storage = PickStorage([&](const Storage& s) {
      return s.device == step->device && s.generator;
    });
    if (step->storage < 0) return false;
    storages_[step->storage].seeded = true;
    step->action = Action::kSeed;
    step->value = Between(0, 1000);
    return true;
  }

  bool DrawDraw(Step* step) {
    step->operand = PickStorage(
        [&](const Storage& s) { return s.device == step->device && s.seeded; });
    if (step->operand < 0) return false;
    step->action = Action::kDraw;
    step->count = DrawCount();
    step->storage = Add(step->device, step->count);
    return true;
  }

  bool DrawCopy(Step* step) {
    step->operand = PickTensor(1 - step->device);
    if (step->operand < 0) return false;
    step->action = Action::kCopy;
    step->count = storages_[step->operand].count;
    step->storage = Add(step->device, step->count);
    return true;
  }

  // Draws an operator with one result and one operand. `storage` is the
  // operand.
  bool SetUnary(Step* step) {
    step->operand = step->storage;
    step->storage = -1;
    step->count = storages_[step->operand].count;
    const int kind = Between(0, 9);
    step->action = kind < 3   ? Action::kAlias
                   : kind < 5 ? Action::kNonzero
                   : kind < 6 ? Action::kFail
                   : kind < 7 ? Action::kThrow
                   : kind < 8 ? Action::kWrongShape
                   : kind < 9 ? Action::kRefused
                              : Action::kFailInPlace;
    // A refused call must be alone in its run. On a multi-worker device, the
    // previous read seals the lane on one worker, and the call may go to
    // another one.
    // After a loss, a storage that a refused call left without a size exists
    // again once it is overwritten in whole, because the call is not replayed.
    if ((spans_ || losses_) && step->action == Action::kRefused) return false;
    if (step->action == Action::kFailInPlace) {
      std::swap(step->operand, step->storage);
      return true;
    }
    step->storage = Add(step->device, step->count);
    storages_.back().unknown_count = step->action == Action::kNonzero;
    return true;
  }

  bool SetUpload(Step* step) {
    step->action = Action::kUpload;
    step->value = Between(1, 3);
    return true;
  }

  bool SetDrop(Step* step) {
    step->action = Action::kDrop;
    storages_[step->storage].live = false;
    return true;
  }

  bool SetRead(Step* step) {
    step->action = Action::kRead;
    const int64_t count = storages_[step->storage].count;
    SetRange(step, count);
    if (OneIn(4)) {
      step->stride = 2;
      step->count = (step->count + 1) / 2;
    }
    return true;
  }

  // Draws all of `size` elements, or some.
  void SetRange(Step* step, int64_t size) {
    step->count = size;
    if (!OneIn(3)) return;
    step->offset = random_() % size;
    step->count = 1 + random_() % (size - step->offset);
  }

  const bool faults_;
  const bool losses_;
  const bool spans_;
  std::mt19937_64 random_;
  Schedule schedule_;
  std::vector<Storage> storages_;
  bool huge_ = false;
  // Set if values are copied between the two devices of the session.
  bool copies_ = false;
  // For tight memory: the bytes that uploads hold now on each device, and the
  // most that they held.
  uint64_t charged_[2] = {0, 0};
  uint64_t most_ = 0;
};

}  // namespace

Schedule DrawSchedule(uint64_t seed, Faults faults, bool spans) {
  return Drawer(seed, faults, spans).Draw();
}

}  // namespace djinn::schedules
