#include "tests/schedules/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace djinn::schedules {
namespace {

const char* Name(Action action) {
  switch (action) {
    case Action::kNew:
      return "new";
    case Action::kFill:
      return "fill_";
    case Action::kAddValue:
      return "add_ value";
    case Action::kAddTensor:
      return "add_";
    case Action::kAdd:
      return "add";
    case Action::kAlias:
      return "alias";
    case Action::kDraw:
      return "draw";
    case Action::kNonzero:
      return "nonzero";
    case Action::kFail:
      return "fail";
    case Action::kThrow:
      return "throw";
    case Action::kWrongShape:
      return "wrong_shape";
    case Action::kRefused:
      return "refused";
    case Action::kFailInPlace:
      return "fail_";
    case Action::kSeed:
      return "seed";
    case Action::kUpload:
      return "upload";
    case Action::kCopy:
      return "copy";
    case Action::kResize:
      return "resize";
    case Action::kRead:
      return "read";
    case Action::kDrop:
      return "drop";
    case Action::kSynchronize:
      return "synchronize";
    case Action::kPlacement:
      return "placement";
    case Action::kCheckpoint:
      return "checkpoint";
    case Action::kLose:
      return "loss of the worker";
    case Action::kLoseLease:
      return "loss of the lease";
    case Action::kRestart:
      return "restart of the worker";
    case Action::kEndLease:
      return "end of the lease";
    case Action::kUnplug:
      return "unplug";
    case Action::kClose:
      return "close the session";
  }
  return "?";
}

const char* Name(Memory memory) {
  switch (memory) {
    case Memory::kAmple:
      return "ample";
    case Memory::kTight:
      return "tight";
    case Memory::kScarce:
      return "scarce";
  }
  return "?";
}

bool ChangesMemory(const Step& step) {
  return step.action == Action::kUpload || step.action == Action::kDrop;
}

std::string ToText(const Fault& fault) {
  std::string text = absl::StrCat("  fault on device ", fault.device,
                                  " stream ", fault.stream, ":");
  if (fault.refused) absl::StrAppend(&text, " refused");
  if (fault.breaks) {
    absl::StrAppend(&text, " breaks ", fault.after ? "after" : "before", " #",
                    fault.message, fault.up ? " up" : " down",
                    ", client notices after ", fault.client_notices_after,
                    fault.worker_notices_late ? ", worker late" : "");
  }
  if (fault.late_turns > 0) {
    absl::StrAppend(&text, " late by ", fault.late_turns);
  }
  return absl::StrCat(text, "\n");
}

}  // namespace

bool EndsDevices(Action action) {
  return action == Action::kRestart || action == Action::kEndLease ||
         action == Action::kUnplug || action == Action::kClose;
}

Use UseOf(const Step& step, int storage) {
  if (storage < 0) return Use::kNone;
  if (step.storage == storage) {
    switch (step.action) {
      case Action::kRead:
        return Use::kReads;
      case Action::kAddValue:
        return Use::kAdds;
      default:
        return Use::kExclusive;
    }
  }
  if (step.operand == storage) {
    return step.action == Action::kDraw ? Use::kExclusive : Use::kReads;
  }
  return step.other == storage ? Use::kReads : Use::kNone;
}

bool Conflict(const Schedule& schedule, const Step& a, const Step& b) {
  // The steps that freed memory before determine what fits.
  if (schedule.setup.memory == Memory::kTight && a.device == b.device &&
      ChangesMemory(a) && ChangesMemory(b)) {
    return true;
  }
  for (const int storage : {a.storage, a.operand, a.other}) {
    const Use first = UseOf(a, storage);
    const Use second = UseOf(b, storage);
    if (first == Use::kNone || second == Use::kNone) continue;
    if (first != second || first == Use::kExclusive) return true;
  }
  return false;
}

std::string ToText(const Step& step) {
  std::string text = absl::StrCat("thread ", step.thread, " device ",
                                  step.device, ": ", Name(step.action));
  if (step.storage >= 0) absl::StrAppend(&text, " s", step.storage);
  if (step.operand >= 0) absl::StrAppend(&text, " from s", step.operand);
  if (step.other >= 0) absl::StrAppend(&text, " and s", step.other);
  if (step.offset != 0) absl::StrAppend(&text, " offset ", step.offset);
  if (step.count != 0) absl::StrAppend(&text, " count ", step.count);
  if (step.stride != 1) absl::StrAppend(&text, " stride ", step.stride);
  if (step.value != 0) absl::StrAppend(&text, " value ", step.value);
  return text;
}

std::string ToText(const Schedule& schedule) {
  const Setup& setup = schedule.setup;
  std::string text = absl::StrCat(
      "seed ", schedule.seed, "\n", setup.threads, " threads, sessions of ",
      "devices ", absl::StrJoin(setup.sessions, " "),
      setup.two_tenants ? ", two tenants" : "", "\nmemory ", Name(setup.memory),
      " ", setup.memory_bytes,
      setup.told_memory_bytes > 0
          ? absl::StrCat(" (told ", setup.told_memory_bytes, " on each of ",
                         setup.workers, " workers)")
          : "",
      ", window ", setup.max_outstanding, " messages ",
      setup.max_outstanding_bytes, " bytes, tenant ", setup.tenant_outstanding,
      ", graphs ", setup.max_graphs, ", plans ", setup.max_plans,
      ", in flight ", setup.in_flight, ", slow every ", setup.slow_every,
      setup.close_at_once ? ", closed at once" : "",
      setup.grants_again ? ", grants again" : "",
      setup.checkpoint_micros >= 0
          ? absl::StrCat(", checkpoints every ", setup.checkpoint_micros,
                         " us in ", setup.checkpoint_memory, " bytes")
          : "",
      setup.executors ? ", has executors" : "",
      setup.recovers ? absl::StrCat(", keeps ", setup.replay_memory, " bytes")
                     : "",
      "\n");
  for (const Fault& fault : setup.faults) text += ToText(fault);
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    absl::StrAppend(&text, "  #", i, " ", ToText(schedule.steps[i]), "\n");
  }
  return text;
}

}  // namespace djinn::schedules
