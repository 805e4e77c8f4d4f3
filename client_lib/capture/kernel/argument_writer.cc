#include "client_lib/capture/kernel/argument_writer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/device/remote_generator.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/throw_status.h"
#include "client_lib/capture/kernel/copy.h"
#include "client_lib/capture/operators/boxed_call.h"
#include "common/torch/random_table.h"

namespace djinn::capture {
namespace {

bool IsTensorKind(ArgumentKind kind) {
  return kind == ArgumentKind::kTensor || kind == ArgumentKind::kTensorList;
}

// Returns whether a CPU tensor is sent as a value. It is if it has no
// dimensions and the call only reads it.
bool IsNumber(const ArgumentInfo& argument, const at::Tensor& tensor) {
  return tensor.dim() == 0 && (argument.access & ~kReads) == 0;
}

// Returns whether the argument's CPU tensors are uploaded. Those of indices
// are, for example.
bool MayBePlaced(const OperatorInfo& info, const ArgumentInfo& argument) {
  return info.takes_cpu_indices && argument.kind == ArgumentKind::kTensorList;
}

at::Tensor UploadIndices(const std::shared_ptr<VirtualDevice>& device,
                         const at::Tensor& source) {
  at::Tensor copy =
      NewRemoteTensor(device, source.sizes(),
                      c10::TensorType::contiguousStridesOf(source.sizes()),
                      source.scalar_type());
  CopyToRemote(source, copy);
  return copy;
}

uint8_t AccessOf(const ArgumentInfo& argument,
                 c10::ArrayRef<c10::IValue> arguments) {
  if (!argument.unmarked.has_value()) return argument.access;
  const std::optional<size_t> flag = argument.unmarked->flag;
  return !flag.has_value() || arguments[*flag].toBool() ? kWrites : kReads;
}

class Writer {
 public:
  Writer(const OperatorInfo& info, const std::shared_ptr<VirtualDevice>& device,
         uint32_t lane, Call* call)
      : info_(info), device_(device), lane_(lane), call_(*call) {}

  void Write(const ArgumentInfo& argument, uint8_t access,
             const c10::IValue& value, bool draws) {
    if (argument.kind == ArgumentKind::kGenerator) {
      WriteGenerator(value, draws);
      return;
    }
    if (value.isNone()) {
      call_.AddNone();
      return;
    }
    switch (argument.kind) {
      case ArgumentKind::kTensor:
        WriteTensor(value.toTensor(), access);
        return;
      case ArgumentKind::kTensorList:
        WriteTensorList(value, access);
        return;
      case ArgumentKind::kInteger:
        call_.AddInteger(value.isInt()
                             ? value.toInt()
                             : value.toSymInt().guard_int(__FILE__, __LINE__));
        return;
      case ArgumentKind::kIntegerList: {
        const c10::DimVector values = value.toDimVector();
        call_.AddIntegers({values.data(), values.size()});
        return;
      }
      case ArgumentKind::kReal:
        call_.AddReal(value.isInt() ? static_cast<double>(value.toInt())
                                    : value.toDouble());
        return;
      case ArgumentKind::kRealList: {
        const std::vector<double> values = value.toDoubleVector();
        call_.AddReals(values);
        return;
      }
      case ArgumentKind::kBoolean:
        call_.AddBoolean(value.toBool());
        return;
      case ArgumentKind::kBooleanList: {
        const c10::List<bool> list = value.toBoolList();
        std::vector<uint8_t> values(list.begin(), list.end());
        call_.AddBooleans(values);
        return;
      }
      case ArgumentKind::kScalar:
        WriteScalar(value.toScalar());
        return;
      case ArgumentKind::kScalarList:
        WriteScalarList(value);
        return;
      case ArgumentKind::kText:
        call_.AddText(value.toStringRef());
        return;
      case ArgumentKind::kDevice:
        call_.AddDevice();
        return;
      case ArgumentKind::kGenerator:
      case ArgumentKind::kUnsupported:
        break;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(false, info_.name, " has an argument of type ",
                                value.tagKind(),
                                ", which cannot be sent to a worker");
  }

  void WriteImplicitGenerator() {
    call_.SetImplicitGenerator(
        DefaultGenerator().StorageOn(device_, lane_).get());
  }

 private:
  RemoteGenerator& DefaultGenerator() {
    return *static_cast<RemoteGenerator*>(
        DefaultRemoteGenerator(static_cast<c10::DeviceIndex>(device_->index()))
            .unsafeGetGeneratorImpl());
  }

  void WriteGenerator(const c10::IValue& value, bool draws) {
    if (!draws) {
      call_.AddNone();
      return;
    }
    if (value.isNone() || !value.toGenerator().defined()) {
      call_.AddGenerator(DefaultGenerator().StorageOn(device_, lane_).get());
      return;
    }
    const at::Generator generator = value.toGenerator();
    TORCH_CHECK(generator.device().type() == c10::DeviceType::PrivateUse1 &&
                    generator.device().index() == device_->index(),
                "Expected a '", DeviceName(), ":", device_->index(),
                "' device type for generator but found '", generator.device(),
                "'");
    call_.AddGenerator(
        static_cast<RemoteGenerator*>(generator.unsafeGetGeneratorImpl())
            ->StorageOn(device_, lane_)
            .get());
  }

  void WriteTensor(const at::Tensor& tensor, uint8_t access) {
    if (!tensor.defined()) {
      call_.AddNone();
      return;
    }
    if (!IsRemote(tensor)) {
      WriteScalarTensor(tensor);
      return;
    }
    RefuseNames(info_, tensor);
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    Operand operand;
    operand.storage = OwnStorageOf(tensor);
    operand.access = access;
    operand.data_type = DataTypeOf(tensor);
    operand.sizes = {impl->sizes().data(), impl->sizes().size()};
    operand.strides = {impl->strides().data(), impl->strides().size()};
    operand.storage_offset = impl->storage_offset();
    operand.conjugate = impl->is_conj();
    operand.negative = impl->is_neg();
    if (access == kOverwrites &&
        !srg::CoversStorage(ViewOf(tensor), operand.storage->size_bytes())) {
      operand.access = kWrites;
    }
    call_.AddTensor(operand);
  }

  // Writes a CPU tensor without dimensions as a value. PlaceOperands() and
  // DeviceOfCall() keep all other CPU tensors from reaching this function.
  void WriteScalarTensor(const at::Tensor& tensor) {
    const at::Tensor plain = tensor.resolve_conj().resolve_neg();
    call_.AddScalarTensor(DataTypeOf(plain),
                          tensor.unsafeGetTensorImpl()->is_wrapped_number(),
                          plain.const_data_ptr());
  }

  void WriteTensorList(const c10::IValue& value, uint8_t access) {
    if (value.isTensorList()) {
      const c10::List<at::Tensor> list = value.toTensorList();
      call_.AddTensorList(list.size());
      for (const at::Tensor& tensor : list) WriteTensor(tensor, access);
      return;
    }
    const c10::ArrayRef<c10::IValue> list = value.toListRef();
    call_.AddTensorList(list.size());
    for (const c10::IValue& element : list) {
      if (element.isNone()) {
        call_.AddNone();
      } else {
        WriteTensor(element.toTensor(), access);
      }
    }
  }

  static std::complex<double> Complex(const c10::Scalar& scalar) {
    const c10::complex<double> value = scalar.toComplexDouble();
    return {value.real(), value.imag()};
  }

  int64_t Integer(const c10::Scalar& scalar) const {
    // PyTorch treats every non-negative integer as unsigned.
    TORCH_CHECK_NOT_IMPLEMENTED(
        !scalar.isUnsigned() || std::in_range<int64_t>(scalar.toUInt64()),
        info_.name, " has the number ", scalar.toUInt64(),
        ", and numbers of 2**63 or more cannot be sent to a worker");
    return scalar.toLong();
  }

  void WriteScalar(const c10::Scalar& scalar) {
    // Booleans come first, because they are integral as well.
    if (scalar.isBoolean()) {
      call_.AddBoolean(scalar.toBool());
    } else if (scalar.isIntegral(/*includeBool=*/false)) {
      call_.AddInteger(Integer(scalar));
    } else if (scalar.isFloatingPoint()) {
      call_.AddReal(scalar.toDouble());
    } else {
      call_.AddComplex(Complex(scalar));
    }
  }

  void WriteScalarList(const c10::IValue& value) {
    std::vector<srg::Scalar> scalars;
    for (const c10::IValue& element : value.toListRef()) {
      const c10::Scalar scalar = element.toScalar();
      if (scalar.isBoolean()) {
        scalars.emplace_back(scalar.toBool());
      } else if (scalar.isIntegral(/*includeBool=*/false)) {
        scalars.emplace_back(Integer(scalar));
      } else if (scalar.isFloatingPoint()) {
        scalars.emplace_back(scalar.toDouble());
      } else {
        scalars.emplace_back(Complex(scalar));
      }
    }
    call_.AddScalars(scalars);
  }

  const OperatorInfo& info_;
  const std::shared_ptr<VirtualDevice>& device_;
  const uint32_t lane_;
  Call& call_;
};

}  // namespace

void RefuseNames(const OperatorInfo& info, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !tensor.has_names(), info.name,
      " has a named tensor, which remote devices do not support");
}

namespace {

// Refuses a call on CPU tensors that only its generator brought here.
void RefuseForeignGenerator(const OperatorInfo& info,
                            c10::ArrayRef<c10::IValue> arguments) {
  bool on_cpu = false;
  std::optional<c10::DeviceType> generator;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isGenerator()) {
      generator = arguments[i].toGenerator().device().type();
    } else if (IsTensorKind(info.arguments[i].kind)) {
      ForEachDefinedTensor(arguments[i], [&](const at::Tensor& tensor) {
        on_cpu |= tensor.is_cpu();
      });
    }
  }
  TORCH_CHECK(
      !on_cpu || !generator.has_value() || *generator == c10::DeviceType::CPU,
      "Expected a 'cpu' device type for generator but found '",
      c10::DeviceTypeName(*generator, /*lower_case=*/true), "'");
}

}  // namespace

std::shared_ptr<VirtualDevice> DeviceOfCall(
    const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> common;
  std::shared_ptr<VirtualDevice> device;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ArgumentInfo& argument = info.arguments[i];
    if (!IsTensorKind(argument.kind)) continue;
    ForEachDefinedTensor(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.is_cpu() &&
          (IsNumber(argument, tensor) || MayBePlaced(info, argument))) {
        return;
      }
      if (!common.has_value()) common = tensor.device();
      if (tensor.device() != *common) {
        ThrowMixedDevices(info, i, *common, tensor.device());
      }
      if (device == nullptr && IsRemote(tensor)) {
        device = OwnStorageOf(tensor)->device();
      }
    });
  }
  if (device != nullptr) return device;
  RefuseForeignGenerator(info, arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.arguments[i].kind == ArgumentKind::kDevice &&
        arguments[i].isDevice() && arguments[i].toDevice().has_index()) {
      return ValueOrThrow(DeviceOfProcess(arguments[i].toDevice().index()));
    }
  }
  return ValueOrThrow(DeviceOfProcess(CurrentDeviceIndex()));
}

void PlaceOperands(const OperatorInfo& info,
                   const std::shared_ptr<VirtualDevice>& device,
                   c10::ArrayRef<c10::IValue> arguments,
                   c10::IValue* mutable_arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!MayBePlaced(info, info.arguments[i])) continue;
    bool has_indices = false;
    ForEachDefinedTensor(arguments[i], [&](const at::Tensor& tensor) {
      has_indices |= !IsRemote(tensor);
    });
    if (!has_indices) continue;
    c10::List<std::optional<at::Tensor>> placed;
    for (const c10::IValue& element : arguments[i].toListRef()) {
      if (element.isNone()) {
        placed.push_back(std::nullopt);
        continue;
      }
      const at::Tensor& tensor = element.toTensor();
      placed.push_back(tensor.defined() && !IsRemote(tensor)
                           ? UploadIndices(device, tensor)
                           : tensor);
    }
    mutable_arguments[i] = c10::IValue(std::move(placed));
  }
}

void WriteArguments(const OperatorInfo& info,
                    const std::shared_ptr<VirtualDevice>& device, uint32_t lane,
                    c10::ArrayRef<c10::IValue> arguments, Call* call) {
  call->Begin(info.operator_id);
  const DrawSource random =
      info.may_draw ? DrawSourceOf(info.handle, arguments) : DrawSource::kNone;
  Writer writer(info, device, lane, call);
  for (size_t i = 0; i < arguments.size(); ++i) {
    writer.Write(info.arguments[i], AccessOf(info.arguments[i], arguments),
                 arguments[i], random == DrawSource::kGeneratorArgument);
  }
  if (random == DrawSource::kDefaultGenerator) {
    writer.WriteImplicitGenerator();
  }
}

}  // namespace djinn::capture
