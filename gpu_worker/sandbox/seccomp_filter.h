// Builds a seccomp filter of system calls.
#ifndef GPU_WORKER_SANDBOX_SECCOMP_FILTER_H_
#define GPU_WORKER_SANDBOX_SECCOMP_FILTER_H_

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace djinn::worker {

// Each rule falls through to the next one if it does not match.
class SeccompFilter {
 public:
#if defined(__x86_64__)
  static constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  static constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
  static constexpr uint32_t kArchitecture = 0;  // there is no filter
#endif

  SeccompFilter() {
    Load(offsetof(seccomp_data, arch));
    // A call of another architecture, or one of the x32 interface, has other
    // numbers.
    Jump(BPF_JEQ, kArchitecture, 1, 0);
    Return(SECCOMP_RET_KILL_PROCESS);
    Load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    Jump(BPF_JGE, 0x40000000, 0, 1);
    Return(SECCOMP_RET_KILL_PROCESS);
#endif
  }

  void Allow(int call) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 1);
    Return(SECCOMP_RET_ALLOW);
  }
  // Has the call fail with `error`, uncounted, because libraries try it.
  void Fail(int call, int error) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 1);
    Return(SECCOMP_RET_ERRNO | static_cast<uint32_t>(error));
  }
  // Allows the call if the argument is one of `values`. Otherwise it has
  // `otherwise` as its result.
  void AllowIf(int call, int argument, const std::vector<uint32_t>& values,
               uint32_t otherwise) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0,
         static_cast<uint8_t>(2 + 2 * values.size()));
    Load(Argument(argument));
    for (const uint32_t value : values) {
      Jump(BPF_JEQ, value, 0, 1);
      Return(SECCOMP_RET_ALLOW);
    }
    Return(otherwise);
  }
  // Allows the call if the argument's bits of `mask` are one of `values`.
  // Otherwise the next rules decide.
  void AllowIfMasked(int call, int argument, uint32_t mask,
                     absl::Span<const uint32_t> values) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0,
         static_cast<uint8_t>(3 + 2 * values.size()));
    Load(Argument(argument));
    code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    for (const uint32_t value : values) {
      Jump(BPF_JEQ, value, 0, 1);
      Return(SECCOMP_RET_ALLOW);
    }
    Load(offsetof(seccomp_data, nr));
  }
  // One half of an argument, of which the bits of `mask` are `value`.
  struct Test {
    int argument;
    uint32_t mask;
    uint32_t value;
    bool upper_half = false;
  };
  // Returns `action` for the call if all tests hold. Otherwise the next rules
  // decide.
  void If(int call, uint32_t action, std::initializer_list<Test> tests) {
    constexpr size_t kTestLength = 3;
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0,
         static_cast<uint8_t>(kTestLength * tests.size() + 2));
    for (size_t left = tests.size(); left > 0; --left) {
      const Test& test = tests.end()[-static_cast<ptrdiff_t>(left)];
      Load(Argument(test.argument) + (test.upper_half ? 4 : 0));
      code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, test.mask));
      Jump(BPF_JEQ, test.value, 0,
           static_cast<uint8_t>(kTestLength * (left - 1) + 1));
    }
    Return(action);
    Load(offsetof(seccomp_data, nr));
  }
  void AllowIfAll(int call, std::initializer_list<Test> tests) {
    If(call, SECCOMP_RET_ALLOW, tests);
  }

  std::vector<sock_filter> Finish() {
    Return(SECCOMP_RET_TRAP);
    return std::move(code_);
  }

 private:
  // The lower half of an argument; both architectures are little-endian.
  static uint32_t Argument(int index) {
    return static_cast<uint32_t>(offsetof(seccomp_data, args) +
                                 sizeof(uint64_t) * static_cast<size_t>(index));
  }
  void Load(uint32_t offset) {
    code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
  }
  void Return(uint32_t action) {
    code_.push_back(BPF_STMT(BPF_RET | BPF_K, action));
  }
  void Jump(uint16_t comparison, uint32_t value, uint8_t yes, uint8_t no) {
    code_.push_back(BPF_JUMP(
        static_cast<uint16_t>(BPF_JMP | BPF_K | comparison), value, yes, no));
  }

  std::vector<sock_filter> code_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SANDBOX_SECCOMP_FILTER_H_
