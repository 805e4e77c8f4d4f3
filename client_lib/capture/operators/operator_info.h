// Facts about one operator that capture needs. They are computed once, when the
// operator is registered, and not at each call.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_OPERATOR_INFO_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_OPERATOR_INFO_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/capture/operators/output_rules.h"
#include "client_lib/session/model/call.h"
#include "client_lib/shape/shape_rules.h"
#include "common/torch/overwrite_table.h"

namespace djinn::capture {

// Says which tensor this process can compute beside the worker, if all operands
// are integers whose values it knows: see host_call.h.
enum class HostUse : uint8_t {
  kNone,
  kReturns,     // its one result; it writes nothing
  kOverwrites,  // its first argument, as a whole
};

HostUse HostUseOf(const c10::FunctionSchema& schema);

// Says how an argument is encoded. It follows from the schema's real type,
// because an empty list as an IValue does not show its element type.
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
  // The access if the argument is a tensor: kReads, kWrites, or kOverwrites if
  // the operand covers its storage.
  uint8_t access = kReads;
  // Set if the kernel writes the argument although the schema does not say so.
  // It replaces `access` for each call.
  std::optional<UnmarkedWrite> unmarked;
  // The schema's name begins with "out", so the tensor is resized to the
  // result.
  bool is_out = false;
};

struct OperatorInfo {
  explicit OperatorInfo(const c10::OperatorHandle& op);

  const c10::OperatorHandle handle;
  std::string name;  // "aten::add.Tensor"
  uint32_t operator_id = 0;
  std::vector<ArgumentInfo> arguments;
  // The position of the argument that each return is, or -1 for a return that
  // is a new tensor.
  std::vector<int> returned_arguments;
  // True for each return that is a list of tensors.
  std::vector<bool> returns_list;
  bool fresh_results = false;  // at least one return is new
  bool writes = false;         // the schema marks an argument as written
  // True if the operator's CPU kernel writes the tensors of a list through
  // other operators, which raise the tensors' versions. The operator's own
  // kernel then does not raise them.
  bool writes_by_others = false;
  bool is_view = false;  // a return aliases an argument without a write
  // True if it has out= arguments and returns nothing else.
  bool is_out = false;
  // The checks that PyTorch makes of the written tensors: see output_rules.h.
  OutputRules output_rules;
  // The position of the argument that may name another device. Present in a
  // factory that follows a tensor, such as new_zeros.
  std::optional<size_t> other_device;
  // The position of the number that fills the first argument and must fit its
  // dtype.
  std::optional<size_t> filling;
  // True if it has arguments that are numbers of any type.
  bool takes_numbers = false;
  // True if floating-point arguments decide shapes, as in arange and upsample,
  // or whether the CPU takes the call, as in uniform_.
  bool reals_shape = false;
  // True if it has a generator argument or PyTorch's tag for random operators.
  bool may_draw = false;
  // True if index tensors may be on the CPU, as on CUDA devices.
  bool takes_cpu_indices = false;
  // True if it is outside of PyTorch's own namespace: see custom_operators.h.
  bool is_custom = false;
  // The error of each call, or empty if calls are supported.
  std::string refusal;
  // The key of the kernel that infers shapes, or Undefined if there is none.
  c10::DispatchKey reentry = c10::DispatchKey::Undefined;
  const ShapeRule* rule = nullptr;
  // True if the CPU has no kernel of its own and calls other operators, which
  // autocast may cast there.
  bool is_composite_on_cpu = false;
  // The overload that returns the results of an in-place or out= operator as
  // new tensors, or null. The registrar sets it after creating all infos.
  const OperatorInfo* functional = nullptr;
  // True if the functional form is a factory, which takes dtype, layout, device
  // and pin_memory in addition.
  bool functional_is_factory = false;
  // Null, unless the last argument of this operator on lists has one number for
  // each tensor: then the overload that takes a single number for all tensors.
  // The registrar sets it after creating all infos.
  const OperatorInfo* with_one_scalar = nullptr;
  // The tensor of a call, if any, that this process can compute beside the
  // worker.
  HostUse host_use = HostUse::kNone;
  // True if PyTorch splits it into other operators, so that no kernel captures
  // it.
  bool is_split = false;
  // True if the kernel throws for some values of a matrix, as a decomposition
  // that does not converge does: see AwaitsOutcome().
  bool may_not_converge = false;
  // The position of the argument, if any, that asks the kernel to throw then.
  std::optional<size_t> checks_errors;

  // Returns whether re-entry uses a structured operator's meta function.
  bool structured() const {
    return reentry == c10::DispatchKey::CompositeExplicitAutogradNonFunctional;
  }
};

// Returns whether the call waits until the worker has computed it. It does so
// for decompositions, whose failure concerns only this call: the program can
// then catch the failure here, as on every device.
bool AwaitsOutcome(const OperatorInfo& info,
                   c10::ArrayRef<c10::IValue> arguments);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_OPERATOR_INFO_H_
