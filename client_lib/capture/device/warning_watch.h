// Notes PyTorch's warnings on their way to the program.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_WARNING_WATCH_H_
#define CLIENT_LIB_CAPTURE_DEVICE_WARNING_WATCH_H_

#include <c10/util/Exception.h>

namespace djinn::capture {

// Notes whether the thread warns during the watch's life. Watches nest.
class WarningWatch {
 public:
  WarningWatch()
      : handler_(c10::WarningUtils::get_warning_handler()), guard_(&handler_) {}

  bool warned() const { return handler_.warned; }

 private:
  struct Handler final : c10::WarningHandler {
    explicit Handler(c10::WarningHandler* handler) : outer(handler) {}
    void process(const c10::Warning& warning) override {
      warned = true;
      outer->process(warning);
    }

    c10::WarningHandler* const outer;
    bool warned = false;
  };

  Handler handler_;
  const c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_WARNING_WATCH_H_
