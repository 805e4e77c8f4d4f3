#include "client_lib/session/model/thread_factory.h"

#include <thread>
#include <utility>

namespace djinn {
namespace {

class RealThread final : public ThreadFactory::Thread {
 public:
  explicit RealThread(std::function<void()> body) : thread_(std::move(body)) {}
  void Join() override { thread_.join(); }

 private:
  std::thread thread_;
};

class RealFactory final : public ThreadFactory {
 public:
  std::unique_ptr<Thread> Start(std::function<void()> body) override {
    return std::make_unique<RealThread>(std::move(body));
  }
};

}  // namespace

ThreadFactory* ThreadFactory::Real() {
  static auto* const factory = new RealFactory;
  return factory;
}

}  // namespace djinn
