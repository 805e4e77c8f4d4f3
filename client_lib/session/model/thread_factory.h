// Starts the threads of a session. A simulation injects its own factory to
// decide which thread runs; the injected clock decides when waits end.
#ifndef CLIENT_LIB_SESSION_MODEL_THREAD_FACTORY_H_
#define CLIENT_LIB_SESSION_MODEL_THREAD_FACTORY_H_

#include <functional>
#include <memory>

namespace djinn {

// Thread-safe.
class ThreadFactory {
 public:
  class Thread {
   public:
    virtual ~Thread() = default;
    // Waits until the body has returned. The owner calls it once, before the
    // destructor.
    virtual void Join() = 0;
  };

  virtual ~ThreadFactory() = default;
  // Runs `body` on a thread of its own.
  virtual std::unique_ptr<Thread> Start(std::function<void()> body) = 0;

  // Returns a factory of operating system threads. Never destroyed.
  static ThreadFactory* Real();
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_THREAD_FACTORY_H_
