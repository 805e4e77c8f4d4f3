#include "tests/bench/futex_ping_pong.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <new>

#include "tests/bench/stopwatch.h"

namespace djinn::bench {
namespace {

constexpr timespec kPatience = {1, 0};

void Wait(std::atomic<uint32_t>* word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT, value, &kPatience, nullptr, 0);
}

void Wake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FutexPingPong>> FutexPingPong::Start() {
  void* const memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
  Page* const page = new (memory) Page{};
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) Answer(page);
  return std::unique_ptr<FutexPingPong>(new FutexPingPong(page, child));
}

// In a fork of a process with threads: no allocation, no lock.
void FutexPingPong::Answer(Page* page) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (page->over == 0) {
    const uint32_t turn = page->turn;
    if (turn % 2 == 0) {
      Wait(&page->turn, turn);
      continue;
    }
    page->turn = turn + 1;
    Wake(&page->turn);
  }
  _exit(0);
}

FutexPingPong::~FutexPingPong() {
  page_->over = 1;
  Wake(&page_->turn);
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  munmap(page_, sizeof(Page));
}

absl::Status FutexPingPong::Exchange(int count, std::vector<double>* seconds) {
  for (int i = 0; i < count; ++i) {
    const double start = WallNow();
    const uint32_t turn = page_->turn + 1;
    page_->turn = turn;
    Wake(&page_->turn);
    while (page_->turn == turn) {
      Wait(&page_->turn, turn);
      if (page_->turn == turn && WallNow() - start > 1) {
        return absl::UnavailableError("the other process does not answer");
      }
    }
    seconds->push_back(WallNow() - start);
  }
  return absl::OkStatus();
}

}  // namespace djinn::bench
