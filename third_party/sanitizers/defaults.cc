// The sanitizers read these options, and the list of reports to leave out, at
// start-up.
//
// Compiled in rather than passed by environment, so that it also holds for
// child processes and for binaries started by hand.

// GCC says it by macros, Clang by features.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#elif __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)

extern "C" const char* __asan_default_options() {
  return "detect_stack_use_after_return=1";
}

extern "C" const char* __ubsan_default_options() {
  return "halt_on_error=1:print_stacktrace=1";
}

// Held until the process ends by libraries that are not ours.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libtorch_cpu.so\n"
         "leak:libc10.so\n"
         "leak:libgomp.so\n";
}

#elif defined(__SANITIZE_THREAD__)

extern "C" const char* __tsan_default_options() {
  return "halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_"
         "modules=1";
}

// These libraries are not instrumented, so their own locks and atomics are
// invisible and every hand-over inside them looks like a race.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libtorch_cpu.so\n"
         "called_from_lib:libc10.so\n"
         "called_from_lib:libgomp\n"
         "race:libabsl_\n"
         "race:libgrpc\n"
         "race:libgpr\n"
         "race:libtorch_cpu\n"
         "race:libgomp\n";
}

#endif
