// Lets no thread start in this process while it lives, for tests of what
// happens when threads have run out. Use one at a time.
#ifndef COMMON_BASE_NO_THREADS_H_
#define COMMON_BASE_NO_THREADS_H_

#include <pthread.h>

#include <cstddef>

namespace djinn {

class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t larger;
    pthread_attr_init(&larger);
    // No address space has room for such a stack.
    pthread_attr_setstacksize(&larger, size_t{1} << 47);
    pthread_setattr_default_np(&larger);
    pthread_attr_destroy(&larger);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

}  // namespace djinn

#endif  // COMMON_BASE_NO_THREADS_H_
