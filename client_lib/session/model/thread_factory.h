// Starts the threads of a session. A simulation injects its own, so that it
// decides which of them runs; the injected clock decides when waits end.
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
    // Returns once the body has returned. Comes before the destructor, once.
    virtual void Join() = 0;
  };

  virtual ~ThreadFactory() = default;
  // Runs `body` on a thread of its own.
  virtual std::unique_ptr<Thread> Start(std::function<void()> body) = 0;

  // Starts threads of the operating system. Never destroyed.
  static ThreadFactory* Real();
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_THREAD_FACTORY_H_
