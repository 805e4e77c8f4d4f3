#include "client_lib/capture/registration/packed_weights.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "common/base/mutex.h"
#include "common/torch/packed_operators.h"
#include "common/torch/packed_weights.h"

namespace djinn::capture {
namespace {

using torch::jit::Stack;
using Object = torch::CustomClassHolder;

// Returns the C++ objects of a packed weight, or of a list of packed weights.
std::vector<c10::intrusive_ptr<Object>> ObjectsOf(const c10::IValue& value) {
  std::vector<c10::intrusive_ptr<Object>> objects;
  const auto add = [&](const c10::IValue& object) {
    objects.push_back(object.toObjectRef().getSlot(0).toCapsule());
  };
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) add(element);
  } else {
    add(value);
  }
  return objects;
}

// Holds the copies of packed weights on remote devices. A copy goes with the
// first copy that is made after the end of its weight. Thread-safe.
class Copies {
 public:
  // Appends the parts of `value` on `device`, and their layout, to the stack.
  void Push(const c10::IValue& value,
            const std::shared_ptr<VirtualDevice>& device, c10::Device index,
            Stack* stack) {
    const std::vector<c10::intrusive_ptr<Object>> objects = ObjectsOf(value);
    {
      MutexLock lock(&mu_);
      for (const Copy& copy : copies_) {
        if (!copy.IsOf(objects, device) || !copy.HasSharedBytes()) continue;
        stack->emplace_back(copy.tensors);
        stack->emplace_back(copy.layout);
        return;
      }
    }
    Copy copy = Make(value, objects, device, index);
    stack->emplace_back(copy.tensors);
    stack->emplace_back(copy.layout);
    std::list<Copy> gone;  // destroyed without the lock
    MutexLock lock(&mu_);
    for (auto it = copies_.begin(); it != copies_.end();) {
      const auto each = it++;
      // A copy with other bytes is out of date.
      if (each->HasEnded() || each->IsOf(objects, device)) {
        gone.splice(gone.end(), copies_, each);
      }
    }
    copies_.push_front(std::move(copy));
  }

 private:
  struct Copy {
    bool IsOf(const std::vector<c10::intrusive_ptr<Object>>& others,
              const std::shared_ptr<VirtualDevice>& other_device) const {
      if (device.lock() != other_device || objects.size() != others.size()) {
        return false;
      }
      for (size_t i = 0; i < others.size(); ++i) {
        if (!(objects[i] == c10::weak_intrusive_ptr<Object>(others[i]))) {
          return false;
        }
      }
      return true;
    }

    bool HasEnded() const {
      for (const c10::weak_intrusive_ptr<Object>& object : objects) {
        if (object.expired()) return true;
      }
      return device.expired();
    }

    // Returns whether the tensors that the program may write are as they were.
    bool HasSharedBytes() const {
      for (size_t i = 0; i < shared.size(); ++i) {
        const at::Tensor now = shared[i].contiguous();
        if (std::memcmp(now.const_data_ptr(), bytes[i].const_data_ptr(),
                        bytes[i].nbytes()) != 0) {
          return false;
        }
      }
      return true;
    }

    std::vector<c10::weak_intrusive_ptr<Object>> objects;
    std::weak_ptr<VirtualDevice> device;
    std::vector<at::Tensor> tensors;
    std::vector<int64_t> layout;
    std::vector<at::Tensor> shared;
    std::vector<at::Tensor> bytes;
  };

  static Copy Make(const c10::IValue& value,
                   const std::vector<c10::intrusive_ptr<Object>>& objects,
                   const std::shared_ptr<VirtualDevice>& device,
                   c10::Device index) {
    PackedParts parts = TakeApart(value);
    Copy copy;
    for (const c10::intrusive_ptr<Object>& object : objects) {
      copy.objects.emplace_back(object);
    }
    copy.device = device;
    for (const at::Tensor& tensor : parts.tensors) {
      copy.tensors.push_back(tensor.to(index));
    }
    copy.layout = std::move(parts.layout);
    copy.shared = std::move(parts.shared);
    for (const at::Tensor& tensor : copy.shared) {
      copy.bytes.push_back(tensor.clone(at::MemoryFormat::Contiguous));
    }
    return copy;
  }

  Mutex mu_;
  std::list<Copy> copies_ ABSL_GUARDED_BY(mu_);
};

Copies& AllCopies() {
  static auto* const copies = new Copies;
  return *copies;
}

// Calls `visit` for each tensor among the arguments and in their lists.
template <typename Visit>
void ForEachTensor(Stack* arguments, const Visit& visit) {
  for (c10::IValue& argument : *arguments) {
    if (argument.isTensor()) {
      argument = visit(argument.toTensor());
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> visited;
      for (const at::Tensor& each : argument.toTensorVector()) {
        visited.push_back(visit(each));
      }
      argument = std::move(visited);
    }
  }
}

// Throws the error that the CPU raises for the operands' metadata, if any. Call
// this after a failure only, because the CPU computes a call that it accepts.
void ThrowAsCpu(const c10::OperatorHandle& op, Stack arguments) {
  ForEachTensor(&arguments, [](const at::Tensor& tensor) {
    if (!IsRemote(tensor)) return tensor;
    return at::zeros({}, tensor.options().device(c10::kCPU))
        .expand(tensor.sizes());
  });
  op.callBoxed(arguments);
}

// Runs one of PyTorch's operators on packed weights on the worker.
class PackedKernel final : public c10::OperatorKernel {
 public:
  explicit PackedKernel(PackedOperator op) : op_(std::move(op)) {}

  void operator()(const c10::OperatorHandle& called, c10::DispatchKeySet,
                  Stack* stack) {
    const c10::FunctionSchema& schema = called.schema();
    Stack arguments = torch::jit::pop(*stack, schema.arguments().size());
    at::Tensor remote;
    ForEachTensor(&arguments, [&](const at::Tensor& tensor) {
      if (!remote.defined() && IsRemote(tensor)) remote = tensor;
      return tensor;
    });
    TORCH_INTERNAL_ASSERT(remote.defined());
    RefuseDropout(schema, arguments);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Stack call;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      if (argument.name() == "dtype") {
        // The packed weights decide; this names a type that has no number in
        // graphs.
        call.emplace_back();
      } else if (IsPackedType(*argument.real_type())) {
        AllCopies().Push(arguments[i], OwnStorageOf(remote)->device(),
                         remote.device(), &call);
      } else {
        call.push_back(arguments[i]);
      }
    }
    try {
      op_.on_parts.callBoxed(call);
    } catch (...) {  // The front end may have translated the error.
      ThrowAsCpu(op_.original, std::move(arguments));
      throw;
    }
    for (c10::IValue& value : call) stack->push_back(std::move(value));
  }

 private:
  // Throws for a recurrent network in training that would draw random numbers.
  static void RefuseDropout(const c10::FunctionSchema& schema,
                            const Stack& arguments) {
    bool train = false, drops = false;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = schema.arguments()[i].name();
      if (name == "train") train = arguments[i].toBool();
      if (name == "dropout") drops = arguments[i].toDouble() > 0;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        !train || !drops, schema.name(), ": ", DeviceName(),
        " does not support dropout in a quantised network: call eval() before");
  }

  const PackedOperator op_;
};

}  // namespace

std::set<std::string> RegisterPackedWeights(torch::Library* backend) {
  DefinePackedOperators();
  torch::Library& quantized = KeepForever(std::make_unique<torch::Library>(
      torch::Library::IMPL, "quantized", c10::DispatchKey::PrivateUse1,
      __FILE__, __LINE__));
  std::set<std::string> names;
  for (const PackedOperator& op : PackedOperators()) {
    const std::string name = toString(op.original.operator_name());
    torch::Library& library =
        absl::StartsWith(name, "aten::") ? *backend : quantized;
    library.impl(name.substr(name.find("::") + 2).c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(
                     std::make_unique<PackedKernel>(op)));
    names.insert(name);
  }
  return names;
}

}  // namespace djinn::capture
