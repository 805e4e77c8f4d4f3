#include "client_lib/capture/kernel/mixed_devices.h"

#include <memory>
#include <optional>
#include <string>

#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/process_session.h"

namespace djinn::capture {
namespace {

// Returns the session's text for mixed devices, or nullopt if the session is
// not strict.
std::optional<std::string> StrictText() {
  const std::shared_ptr<Session> session = CurrentSession();
  return session == nullptr ? std::nullopt : session->options().strict_devices;
}

std::string Behind(const std::optional<std::string>& text) {
  return text.has_value() && !text->empty() ? " " + *text : "";
}

[[noreturn]] void ThrowTwoDevices(c10::Device a, c10::Device b,
                                  const std::optional<std::string>& text) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at "
              "least two devices, ",
              a, " and ", b, "!", Behind(text));
}

}  // namespace

// Elementwise operators name the two devices. Others name the argument whose
// device differs, and the method under the name that PyTorch's generated code
// uses.
void ThrowMixedDevices(const OperatorInfo& info, size_t argument,
                       c10::Device common, c10::Device device) {
  const std::optional<std::string> text = StrictText();
  if (info.handle.hasTag(at::Tag::pointwise)) {
    ThrowTwoDevices(common, device, text);
  }
  const c10::FunctionSchema& schema = info.handle.schema();
  std::string method = schema.name();
  if (!schema.overload_name().empty()) method += "_" + schema.overload_name();
  method.erase(0, method.find("::") + 2);
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ",
              schema.arguments()[argument].name(), " is on ", device,
              ", different from other tensors on ", common,
              " (when checking argument in method wrapper_", DeviceName(), "_",
              method, ")", Behind(text));
}

void CheckCopyAllowed(c10::Device source, c10::Device destination) {
  const std::optional<std::string> text = StrictText();
  if (text.has_value()) ThrowTwoDevices(source, destination, text);
}

}  // namespace djinn::capture
