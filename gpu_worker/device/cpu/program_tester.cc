#include "gpu_worker/device/cpu/program_tester.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/core/List.h"
#include "c10/core/InferenceMode.h"
#include "common/torch/data_type.h"
#include "common/torch/overwrite_table.h"
#include "common/torch/random_table.h"
#include "common/torch/schema_hash.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using torch::jit::Stack;

std::string StateBytes(const at::Generator& generator) {
  const at::Tensor state = generator.get_state();
  return std::string(static_cast<const char*>(state.const_data_ptr()),
                     state.nbytes());
}

// Copies operands so that those that shared a storage still do.
class OperandCopier {
 public:
  c10::IValue Copy(const c10::IValue& value) {
    if (value.isTensor()) return Copy(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(Copy(tensor));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor :
           value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value()
                           ? std::optional<at::Tensor>(Copy(*tensor))
                           : std::nullopt);
      }
      return list;
    }
    return value;
  }

 private:
  at::Tensor Copy(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    c10::Storage& copy = copies_[tensor.storage().unsafeGetStorageImpl()];
    if (!copy) {
      const uint64_t bytes = tensor.storage().nbytes();
      copy = UninitialisedStorage(bytes);
      if (bytes > 0) {
        std::memcpy(copy.mutable_data(), tensor.storage().data(), bytes);
      }
    }
    srg::TensorView view;
    EXPECT_TRUE(DescribeTensor(tensor, &view));
    at::Tensor result = MakeTensor(view, copy);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      result.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return result;
  }

  std::map<c10::StorageImpl*, c10::Storage> copies_;
};

class Encoder {
 public:
  Encoder(Device* device, const c10::OperatorHandle& op)
      : device_(device), op_(op) {}

  EncodedCall Encode(const Stack& arguments,
                     const std::vector<at::Tensor>& results) {
    const c10::FunctionSchema& schema = op_.schema();
    call_.graph.operators.push_back(
        {schema.name(), schema.overload_name(), SchemaHash(schema)});
    srg::Node node;
    std::vector<uint32_t> read;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      touched_.clear();
      node.arguments.push_back(EncodeAs(*argument.real_type(), arguments[i]));
      const std::optional<UnmarkedWrite> unmarked =
          FindUnmarkedWrite(schema, i);
      const bool written = unmarked.has_value()
                               ? !unmarked->flag.has_value() ||
                                     arguments[*unmarked->flag].toBool()
                               : argument.alias_info() != nullptr &&
                                     argument.alias_info()->isWrite();
      for (const auto& [slot, covers] : touched_) {
        if (written) node.writes.push_back(slot);
        if (Overwrites(schema, i) && covers) {
          node.overwrites.push_back(slot);
        } else {
          read.push_back(slot);
        }
      }
    }
    SortUnique(&node.writes);
    SortUnique(&node.overwrites);
    for (const uint32_t slot : read) {
      node.overwrites.erase(
          std::remove(node.overwrites.begin(), node.overwrites.end(), slot),
          node.overwrites.end());
    }
    if (DrawSourceOf(op_, arguments) == DrawSource::kDefaultGenerator) {
      node.implicit_generator_slot =
          AddGenerator(at::detail::getDefaultCPUGenerator());
    }
    for (const at::Tensor& result : results) {
      if (!result.defined()) {
        node.results.push_back(srg::UndefinedResult{});
        continue;
      }
      srg::TensorView view;
      EXPECT_TRUE(DescribeTensor(result, &view));
      view.slot = AddSlot(srg::Slot::Kind::kResult, nullptr);
      node.results.push_back(std::move(view));
    }
    call_.graph.nodes.push_back(std::move(node));
    call_.graph.float_hole_count = static_cast<uint32_t>(call_.floats.size());
    call_.graph.scalar_tensor_hole_count =
        static_cast<uint32_t>(call_.scalar_tensors.size());
    return std::move(call_);
  }

 private:
  uint32_t AddSlot(srg::Slot::Kind kind, std::shared_ptr<Buffer> buffer) {
    call_.graph.slots.push_back({kind, 0});
    call_.slots.push_back(std::move(buffer));
    return static_cast<uint32_t>(call_.slots.size() - 1);
  }

  std::shared_ptr<Buffer> Upload(absl::string_view bytes) {
    std::shared_ptr<Buffer> buffer = device_->Allocate(bytes.size()).value();
    EXPECT_TRUE(device_->Write(buffer.get(), 0, bytes).ok());
    return buffer;
  }

  uint32_t AddGenerator(const at::Generator& generator) {
    return AddSlot(srg::Slot::Kind::kGenerator, Upload(StateBytes(generator)));
  }

  // Encodes a tensor as a view, or a wrapped number as a scalar tensor.
  srg::TensorListEntry EncodeTensor(const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      srg::ScalarTensor scalar;
      scalar.hole = static_cast<uint32_t>(call_.scalar_tensors.size());
      scalar.data_type = *DataTypeFromTorch(tensor.scalar_type());
      scalar.wrapped_number = true;
      call_.scalar_tensors.emplace_back(
          static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
      return scalar;
    }
    const auto [found, added] =
        slot_of_.try_emplace(tensor.storage().unsafeGetStorageImpl(), 0);
    if (added) {
      found->second =
          AddSlot(srg::Slot::Kind::kBound,
                  Upload({static_cast<const char*>(tensor.storage().data()),
                          tensor.storage().nbytes()}));
    }
    srg::TensorView view;
    EXPECT_TRUE(DescribeTensor(tensor, &view));
    view.slot = found->second;
    touched_.emplace_back(view.slot,
                          srg::CoversStorage(view, tensor.storage().nbytes()));
    return view;
  }

  template <typename Element>
  static std::vector<Element> VectorOf(const c10::List<Element>& list) {
    return std::vector<Element>(list.begin(), list.end());
  }

  srg::Argument EncodeFloat(double value) {
    call_.floats.push_back(value);
    return srg::FloatHole{static_cast<uint32_t>(call_.floats.size() - 1)};
  }

  srg::Argument EncodeAs(const c10::Type& type, const c10::IValue& value) {
    if (type.kind() == c10::TypeKind::GeneratorType) {
      return srg::GeneratorSlot{AddGenerator(value.toGenerator())};
    }
    if (const auto* optional = type.castRaw<c10::OptionalType>()) {
      const c10::Type& inner = *optional->getElementType();
      if (value.isNone() && inner.kind() == c10::TypeKind::GeneratorType) {
        return srg::GeneratorSlot{
            AddGenerator(at::detail::getDefaultCPUGenerator())};
      }
      if (value.isNone()) return std::monostate();
      return EncodeAs(inner, value);
    }
    if (value.isTensor()) {
      if (!value.toTensor().defined()) return std::monostate();
      const srg::TensorListEntry entry = EncodeTensor(value.toTensor());
      if (const auto* view = std::get_if<srg::TensorView>(&entry)) return *view;
      return std::get<srg::ScalarTensor>(entry);
    }
    if (value.isTensorList() || value.isOptionalTensorList()) {
      std::vector<srg::TensorListEntry> entries;
      for (const c10::IValue& element : value.toListRef()) {
        entries.push_back(element.isNone() ? srg::TensorListEntry()
                                           : EncodeTensor(element.toTensor()));
      }
      return entries;
    }
    if (type.kind() == c10::TypeKind::DeviceObjType) return srg::WorkerDevice{};
    if (const auto* list = type.castRaw<c10::ListType>();
        list != nullptr &&
        list->getElementType()->kind() == c10::TypeKind::NumberType) {
      std::vector<srg::Scalar> scalars;
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isInt()) {
          scalars.push_back(element.toInt());
        } else if (element.isBool()) {
          scalars.push_back(element.toBool());
        } else {
          scalars.push_back(element.toDouble());
        }
      }
      return scalars;
    }
    if (value.isInt()) return value.toInt();
    if (value.isBool()) return value.toBool();
    if (value.isDouble()) return EncodeFloat(value.toDouble());
    if (value.isString()) return value.toStringRef();
    if (value.isIntList()) return VectorOf(value.toIntList());
    if (value.isBoolList()) return VectorOf(value.toBoolList());
    if (value.isDoubleList()) return VectorOf(value.toDoubleList());
    if (value.isComplexDouble()) {
      return std::complex<double>(value.toComplexDouble());
    }
    ADD_FAILURE() << "cannot encode a " << type.repr_str();
    return std::monostate();
  }

  Device* const device_;
  const c10::OperatorHandle op_;
  EncodedCall call_;
  std::map<c10::StorageImpl*, uint32_t> slot_of_;
  // Slots of the argument being encoded, and whether the view covers them.
  std::vector<std::pair<uint32_t, bool>> touched_;
};

std::vector<at::Tensor> FlattenResults(const c10::FunctionSchema& schema,
                                       const Stack& returns) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < returns.size(); ++i) {
    const c10::AliasInfo* const alias = schema.returns()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    if (returns[i].isTensor()) {
      tensors.push_back(returns[i].toTensor());
    } else {
      for (const at::Tensor& tensor : returns[i].toTensorVector()) {
        tensors.push_back(tensor);
      }
    }
  }
  return tensors;
}

// Returns the storages of all tensors among the arguments, in the order of
// their slots.
std::vector<c10::Storage> OperandStorages(const Stack& arguments) {
  std::vector<c10::Storage> storages;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() ||
        tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      return;
    }
    for (const c10::Storage& storage : storages) {
      if (storage.is_alias_of(tensor.storage())) return;
    }
    storages.push_back(tensor.storage());
  };
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) add(element.toTensor());
      }
    }
  }
  return storages;
}

}  // namespace

c10::OperatorHandle FindOperator(const std::string& name,
                                 const std::string& overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(),
                                                        overload.c_str());
}

torch::jit::Stack WithDefaults(const c10::OperatorHandle& op,
                               torch::jit::Stack arguments) {
  for (size_t i = arguments.size(); i < op.schema().arguments().size(); ++i) {
    arguments.push_back(op.schema().arguments()[i].default_value().value());
  }
  return arguments;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return false;
  }
  c10::InferenceMode inference;
  const at::Tensor x = a.resolve_conj().resolve_neg().contiguous();
  const at::Tensor y = b.resolve_conj().resolve_neg().contiguous();
  return x.nbytes() == 0 ||
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

ProgramTester::ProgramTester(CpuDeviceOptions options) {
  if (options.memory_bytes == 0) options.memory_bytes = uint64_t{1} << 30;
  if (options.threads == 0) options.threads = 2;
  device_ = MakeCpuDevice(options).value();
}

EncodedCall ProgramTester::Encode(const std::string& name,
                                  const std::string& overload, Stack arguments,
                                  const std::vector<at::Tensor>& results) {
  const c10::OperatorHandle op = FindOperator(name, overload);
  return Encoder(device(), op)
      .Encode(WithDefaults(op, std::move(arguments)), results);
}

CallOutcome ProgramTester::Run(const EncodedCall& call) {
  CallOutcome outcome;
  const absl::StatusOr<std::unique_ptr<CompiledProgram>> program =
      library()->Compile(call.graph);
  outcome.status = program.status();
  if (program.ok()) {
    outcome.status = (*program)->Execute(0, call.input(), &outcome.results);
  }
  return outcome;
}

CallOutcome ProgramTester::ExpectLikeEager(const std::string& name,
                                           const std::string& overload,
                                           Stack arguments) {
  SCOPED_TRACE(name + "." + overload);
  const c10::OperatorHandle op = FindOperator(name, overload);
  arguments = WithDefaults(op, std::move(arguments));
  EncodedCall call = Encode(name, overload, arguments, {});
  // Makes the call directly, on copies.
  c10::InferenceMode inference;
  OperandCopier copier;
  Stack stack;
  for (const c10::IValue& argument : arguments) {
    stack.push_back(copier.Copy(argument));
  }
  const std::vector<c10::Storage> operands = OperandStorages(stack);
  // Keeps the arguments: an operator with several outputs returns references to
  // them, but its boxing releases them first.
  const Stack held = stack;
  op.callBoxed(&stack);
  const std::vector<at::Tensor> expected = FlattenResults(op.schema(), stack);
  // Makes the call through the library, from the state before the direct call.
  EncodedCall with_results = Encoder(device(), op).Encode(arguments, expected);
  call.node().results = with_results.node().results;
  call.graph.slots = with_results.graph.slots;
  call.slots.resize(call.graph.slots.size());
  CallOutcome outcome = Run(call);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  if (!outcome.status.ok()) return outcome;

  EXPECT_EQ(outcome.results.size(), expected.size());
  for (size_t i = 0; i < std::min(expected.size(), outcome.results.size());
       ++i) {
    const NodeResult& result = outcome.results[i];
    EXPECT_EQ(result.buffer != nullptr, expected[i].defined()) << i;
    if (result.buffer == nullptr || !expected[i].defined()) continue;
    srg::TensorView view;
    EXPECT_TRUE(DescribeTensor(expected[i], &view));
    EXPECT_EQ(result.view, view) << srg::DescribeView(result.view);
    EXPECT_TRUE(SameBits(TensorOf(result), expected[i])) << "result " << i;
  }
  size_t bound = 0;
  for (size_t slot = 0; slot < call.slots.size(); ++slot) {
    const srg::Slot::Kind kind = call.graph.slots[slot].kind;
    if (kind == srg::Slot::Kind::kBound) {
      const c10::Storage& storage = operands[bound++];
      EXPECT_EQ(BytesOf(*call.slots[slot]),
                std::string(static_cast<const char*>(storage.data()),
                            storage.nbytes()))
          << "operand in slot " << slot;
    } else if (kind == srg::Slot::Kind::kGenerator) {
      const auto& argument = call.node().implicit_generator_slot;
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      for (const c10::IValue& value : arguments) {
        if (value.isGenerator()) generator = value.toGenerator();
      }
      EXPECT_EQ(BytesOf(*call.slots[slot]), StateBytes(generator))
          << "generator, implicit: " << argument.has_value();
    }
  }
  return outcome;
}

void ProgramTester::ExpectGood(const std::string& op,
                               const torch::jit::Stack& arguments,
                               const std::string& overload) {
  const CallOutcome outcome =
      ExpectLikeEager("aten::" + op, overload, arguments);
  EXPECT_TRUE(outcome.status.ok()) << op << ": " << outcome.status;
}

absl::Status ProgramTester::ExpectFailsLikeEager(const std::string& name,
                                                 const std::string& overload,
                                                 Stack arguments) {
  SCOPED_TRACE(name + "." + overload);
  const c10::OperatorHandle op = FindOperator(name, overload);
  arguments = WithDefaults(op, std::move(arguments));
  EncodedCall call =
      Encode(name, overload, arguments, std::vector<at::Tensor>(1));
  if (std::all_of(op.schema().returns().begin(), op.schema().returns().end(),
                  [](const c10::Argument& result) {
                    return result.alias_info() != nullptr &&
                           result.alias_info()->isWrite();
                  })) {
    call.node().results.clear();
  }
  std::vector<std::string> before;
  for (const std::shared_ptr<Buffer>& buffer : call.slots) {
    before.push_back(buffer == nullptr ? "" : BytesOf(*buffer));
  }
  const CallOutcome outcome = Run(call);
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_TRUE(outcome.results.empty());
  for (uint32_t slot = 0; slot < call.slots.size(); ++slot) {
    const auto& writes = call.node().writes;
    if (std::find(writes.begin(), writes.end(), slot) != writes.end()) continue;
    if (call.slots[slot] == nullptr) continue;
    EXPECT_EQ(BytesOf(*call.slots[slot]), before[slot]) << "slot " << slot;
  }
  try {
    c10::InferenceMode inference;
    OperandCopier copier;
    Stack stack;
    for (const c10::IValue& argument : arguments) {
      stack.push_back(copier.Copy(argument));
    }
    const Stack held = stack;
    op.callBoxed(&stack);
    ADD_FAILURE() << "the direct call does not fail";
  } catch (const c10::Error& error) {
    EXPECT_EQ(outcome.status.message(), error.what_without_backtrace());
  }
  return outcome.status;
}

at::Tensor ProgramTester::TensorOf(const NodeResult& result) {
  c10::InferenceMode inference;
  return MakeTensor(result.view,
                    static_cast<const TorchBuffer&>(*result.buffer).storage());
}

std::string ProgramTester::BytesOf(const Buffer& buffer) {
  return std::string(static_cast<const TorchBuffer&>(buffer).data(),
                     buffer.size_bytes());
}

}  // namespace djinn::worker
