#include "tests/random_programs/program.h"

#include <ATen/core/Formatting.h>

#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace djinn::random_programs {
namespace {

std::string SlotName(int index) {
  return index == kNoTensor ? "None" : absl::StrCat("v", index);
}

std::string TensorText(const at::Tensor& tensor) {
  std::ostringstream out;
  out << "cpu(" << tensor.scalar_type();
  if (tensor.numel() <= 12) {
    out << ", " << tensor.sizes() << ", [";
    const at::Tensor flat = tensor.reshape({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      out << (i > 0 ? ", " : "") << flat[i].item();
    }
    out << "])";
  } else {
    out << ", " << tensor.sizes() << ", ...)";
  }
  return out.str();
}

std::string ValueText(const c10::IValue& value) {
  if (value.isTensor()) return TensorText(value.toTensor());
  if (value.isBool()) return value.toBool() ? "True" : "False";
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string ArgumentText(const Argument& argument) {
  if (const auto* value = std::get_if<c10::IValue>(&argument)) {
    return ValueText(*value);
  }
  if (const auto* slot = std::get_if<Slot>(&argument)) {
    return SlotName(slot->index);
  }
  if (const auto* list = std::get_if<SlotList>(&argument)) {
    return absl::StrCat("[",
                        absl::StrJoin(list->indices, ", ",
                                      [](std::string* out, int index) {
                                        absl::StrAppend(out, SlotName(index));
                                      }),
                        "]");
  }
  return std::holds_alternative<Attribute>(argument) ? "attribute" : "device";
}

// Returns the call as text: first positional arguments, then other arguments by
// name, without those that equal their default.
std::string CallText(const Step& step) {
  const c10::FunctionSchema& schema = step.op->schema();
  std::vector<std::string> texts;
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const auto* value = std::get_if<c10::IValue>(&step.arguments[i]);
    const std::string text = ArgumentText(step.arguments[i]);
    if (value != nullptr && argument.default_value().has_value() &&
        ValueText(*argument.default_value()) == text) {
      continue;
    }
    texts.push_back(argument.kwarg_only()
                        ? absl::StrCat(argument.name(), "=", text)
                        : text);
  }
  return absl::StrCat(step.name(), "(", absl::StrJoin(texts, ", "), ")");
}

std::string StepText(const Step& step) {
  const auto argument = [&](size_t i) {
    return ArgumentText(step.arguments[i]);
  };
  switch (step.kind) {
    case Step::Kind::kCall:
      return CallText(step);
    case Step::Kind::kUpload:
      return absl::StrCat(argument(0), ".to(device)");
    case Step::Kind::kDrop:
      return absl::StrCat("del ", argument(0));
    case Step::Kind::kRead:
      return absl::StrCat(argument(0), ".cpu()");
    case Step::Kind::kSeed:
      return absl::StrCat("manual_seed(", argument(0), ")");
    case Step::Kind::kRequiresGrad:
      return absl::StrCat(argument(0), ".requires_grad_(", argument(1), ")");
    case Step::Kind::kBackward:
      return absl::StrCat(argument(0), ".backward(ones_like(", argument(0),
                          "), retain_graph=", argument(1), ")");
    case Step::Kind::kLearn:
      return absl::StrCat("if ", argument(0), ".requires_grad: ", argument(0),
                          ".backward(ones_like(", argument(0), "))");
    case Step::Kind::kGrad:
      return absl::StrCat(argument(0), ".grad");
    case Step::Kind::kClearGrad:
      return absl::StrCat(argument(0),
                          std::get<c10::IValue>(step.arguments[1]).toBool()
                              ? ".grad = None"
                              : ".grad.zero_()");
    case Step::Kind::kUpdate:
      return absl::StrCat("with no_grad(): ", argument(0), " -= ", argument(1),
                          " * ", argument(0), ".grad");
    case Step::Kind::kSetData:
      return absl::StrCat(argument(0), ".data = ", argument(1));
    case Step::Kind::kSetFast:
      return absl::StrCat(
          "set_execution_mode(",
          std::get<c10::IValue>(step.arguments[0]).toBool() ? "fast" : "strict",
          ")");
    case Step::Kind::kCallable:
      return absl::StrCat("callable", step.callable->id, "(", argument(0),
                          step.callable->parameters > 0
                              ? absl::StrCat(", parameters=", argument(1))
                              : "",
                          step.callable->uses_attribute()
                              ? absl::StrCat(", attribute=", argument(2))
                              : "",
                          ")");
  }
  return "";
}

std::string SlotNames(int first, int count) {
  if (count == 0) return "nothing";
  return count == 1 ? SlotName(first)
                    : absl::StrCat(SlotName(first), " to ",
                                   SlotName(first + count - 1));
}

}  // namespace

std::string Step::name() const {
  switch (kind) {
    case Kind::kCall: {
      std::string name = op->schema().name().substr(6);
      const std::string& overload = op->schema().overload_name();
      return overload.empty() ? name : absl::StrCat(name, ".", overload);
    }
    case Kind::kUpload:
      return "(upload)";
    case Kind::kDrop:
      return "(drop)";
    case Kind::kRead:
      return "(read)";
    case Kind::kSeed:
      return "(manual_seed)";
    case Kind::kRequiresGrad:
      return "(requires_grad_)";
    case Kind::kBackward:
      return "(backward)";
    case Kind::kLearn:
      return "(learn)";
    case Kind::kGrad:
      return "(grad)";
    case Kind::kClearGrad:
      return "(clear grad)";
    case Kind::kUpdate:
      return "(update)";
    case Kind::kSetData:
      return "(set_data)";
    case Kind::kSetFast:
      return "(set_execution_mode)";
    case Kind::kCallable:
      return "(callable)";
  }
  return "";
}

bool IsBackward(const Step& step) {
  return step.kind == Step::Kind::kBackward || step.kind == Step::Kind::kLearn;
}

bool Callable::uses_attribute() const {
  for (const Step& step : steps) {
    for (const Argument& argument : step.arguments) {
      if (std::holds_alternative<Attribute>(argument)) return true;
    }
  }
  return false;
}

c10::OperatorHandle FindOperator(const std::string& name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      absl::StrCat("aten::", name.substr(0, dot)).c_str(),
      dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

std::string Print(const Step& step) {
  std::string text = StepText(step);
  if (!step.results.empty()) {
    text = absl::StrCat(absl::StrJoin(step.results, ", ",
                                      [](std::string* out, int index) {
                                        absl::StrAppend(out, SlotName(index));
                                      }),
                        " = ", text);
  }
  if (step.mode == Mode::kNoGrad) text = "with no_grad(): " + text;
  if (step.mode == Mode::kInference) text = "with inference_mode(): " + text;
  return text;
}

std::string Print(const Callable& callable) {
  std::string text = absl::StrCat("  callable", callable.id, " of ",
                                  SlotNames(0, callable.arguments));
  if (callable.parameters > 0) {
    absl::StrAppend(&text, callable.same_parameters ? ", always" : ",",
                    " referring to ",
                    SlotNames(callable.arguments, callable.parameters));
  }
  absl::StrAppend(&text, ":\n");
  for (const Step& step : callable.steps) {
    absl::StrAppend(&text, "    ", Print(step), "\n");
  }
  absl::StrAppend(&text, "    return v", absl::StrJoin(callable.outputs, ", v"),
                  callable.detached ? ", detached\n" : "\n");
  return text;
}

std::string Print(const Program& program) {
  std::string text;
  std::set<int> printed;
  for (const Step& step : program.steps) {
    if (step.callable != nullptr && printed.insert(step.callable->id).second) {
      text += Print(*step.callable);
    }
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    absl::StrAppend(
        &text, "  ", i, ": ",
        program.lanes > 1 ? absl::StrCat("[lane ", step.lane, "] ") : "",
        Print(step), "\n");
  }
  return text;
}

}  // namespace djinn::random_programs
