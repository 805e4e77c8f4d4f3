// What capture must know about one operator, worked out once when it is
// registered, so that the kernel itself makes no decision twice.
#ifndef CLIENT_LIB_CAPTURE_OPERATOR_INFO_H_
#define CLIENT_LIB_CAPTURE_OPERATOR_INFO_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/capture/host_use.h"
#include "client_lib/capture/output_rules.h"
#include "client_lib/session/model/call.h"
#include "client_lib/shape/shape_rules.h"
#include "common/torch/unmarked_writes.h"

namespace djinn::capture {

// How an argument is coded, from its schema's real type (an IValue alone does
// not tell an empty list's element type).
enum class ArgumentKind : uint8_t {
  kTensor,
  kTensorList,
  kInteger,
  kIntegerList,
  kReal,
  kRealList,
  kBoolean,
  kBooleanList,
  kScalar,
  kScalarList,
  kText,
  kDevice,
  kGenerator,
  kUnsupported,
};

struct ArgumentInfo {
  ArgumentKind kind = ArgumentKind::kUnsupported;
  // Access when the argument is a tensor: kReads, kWrites, or kOverwrites when
  // the operand covers its storage.
  uint8_t access = kReads;
  // Set when the kernel writes the argument although the schema does not say
  // so; takes the place of `access`, call by call.
  std::optional<UnmarkedWrite> unmarked;
  // The schema's name begins with "out": resized to the result's sizes.
  bool is_out = false;
};

struct OperatorInfo {
  explicit OperatorInfo(const c10::OperatorHandle& op);

  const c10::OperatorHandle handle;
  std::string name;  // "aten::add.Tensor"
  uint32_t operator_id = 0;
  std::vector<ArgumentInfo> arguments;
  // Per return: the argument it is, or -1 when it is fresh.
  std::vector<int> returned_arguments;
  // Per return: whether it is a list of tensors.
  std::vector<bool> returns_list;
  bool fresh_results = false;  // at least one return is fresh
  bool writes = false;         // the schema marks an argument as written
  // On the CPU it writes a list's tensors by other operators, which raise their
  // versions; its own kernel does not.
  bool writes_by_others = false;
  bool is_view = false;  // a return aliases an argument without a write
  // Has out= arguments, and returns nothing else.
  bool is_out = false;
  // What PyTorch checks of the tensors it writes: see output_rules.h.
  OutputRules output_rules;
  // Of a factory that follows a tensor, as new_zeros: the argument that may
  // name another device.
  std::optional<size_t> other_device;
  // The argument by which the first one is filled: a number that must fit.
  std::optional<size_t> filling;
  // Has arguments that are a number of any type.
  bool takes_numbers = false;
  // Floating-point arguments decide shapes, as in arange and upsample.
  bool reals_shape = false;
  // Has a generator argument or carries PyTorch's random tag.
  bool may_draw = false;
  // Index tensors may live on the CPU, as CUDA allows.
  bool takes_cpu_indices = false;
  // Not of PyTorch's own namespace: see custom_operators.h.
  bool is_custom = false;
  // Non-empty: the call is refused with this text.
  std::string refusal;
  // The kernel through which shapes are found; Undefined when there is none.
  c10::DispatchKey reentry = c10::DispatchKey::Undefined;
  const ShapeRule* rule = nullptr;
  // For an in-place or out= operator: the overload that returns the same
  // results afresh; null when there is none. Set after all are made.
  const OperatorInfo* functional = nullptr;
  // The functional form is a factory, which takes dtype, layout, device and
  // pin_memory after what this one takes.
  bool functional_is_factory = false;
  // For an operator on lists of tensors whose last argument is a number for
  // each: the overload that takes one for all, with the same results; null when
  // there is none. Set after all are made.
  const OperatorInfo* with_one_scalar = nullptr;
  // Whether this process can carry it out beside the worker.
  HostUse host_use = HostUse::kNone;
  // PyTorch splits it into others; there is no kernel to capture it.
  bool is_split = false;

  // Whether the reentry key is a structured operator's.
  bool structured() const {
    return reentry == c10::DispatchKey::CompositeExplicitAutogradNonFunctional;
  }
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATOR_INFO_H_
