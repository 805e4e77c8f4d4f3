// A program that uses the device by name, finds its cluster in the environment,
// and ends as its argument says:
//
// hold   computes, prints "ready" and waits to be killed
// again  uploads what hold does, prints how many uploads were held already
// exit   returns from main with live tensors and an open session
// fork   does in a forked child what a child must not do
//
// Its exit status is 0 when all was as expected.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sanitizer/lsan_interface.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <iostream>
#include <string>

#include "djinn/djinn.h"

namespace {

bool is_child = false;

}  // namespace

// In a forked child, memory that the parent's threads used looks leaked,
// because the child does not have these threads.
extern "C" int __lsan_is_turned_off() { return is_child ? 1 : 0; }

namespace {

// Returns weights that are larger than the inline limit, so that the worker
// keeps the bytes as a content.
at::Tensor Weights() {
  return at::arange(1 << 20, at::TensorOptions(at::kFloat));
}

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::cout << "failed: " << what << std::endl;
  _exit(1);
}

void RequireAfterFork(const std::string& what,
                      const std::function<void()>& use) {
  try {
    use();
  } catch (const djinn::Error& error) {
    return Require(error.reason() == "AFTER_FORK",
                   what + " threw " + error.what());
  }
  Require(false, what + " threw nothing");
}

void UseInChild(at::Tensor x) {
  RequireAfterFork("an operator", [&] { x.add(1); });
  RequireAfterFork("a write", [&] { x.add_(1); });
  RequireAfterFork("a read", [&] { x.cpu(); });
  RequireAfterFork("an upload", [&] { at::ones({4}).to(djinn::Device()); });
  RequireAfterFork("a large upload", [&] { Weights().to(djinn::Device()); });
  RequireAfterFork("another device", [&] { x.to(djinn::Device(1)); });
  RequireAfterFork("a shape that depends on data", [&] { x.nonzero(); });
  Require(!djinn::Synchronize().ok(), "Synchronize() worked in a child");
  Require(!djinn::WhereIs().ok(), "WhereIs() worked in a child");
  Require(!djinn::Connect().ok(), "Connect() worked in a child");
  Require(!djinn::Close().ok(), "Close() worked in a child");
  at::manual_seed(3);
  x.reset();
  Require(at::ones({4}).sum().item<float>() == 4, "the CPU in a child");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string end = argc > 1 ? argv[1] : "";
  // PyTorch's own threads do not survive a fork.
  at::set_num_threads(1);
  // These tensors outlive main.
  static at::Tensor weights = Weights().to("remote_accelerator:0");
  static at::Tensor doubled = weights * 2;
  Require(doubled.select(0, 7).item<float>() == 14, "the value");
  if (end == "again") {
    std::cout << "held " << djinn::GetStatistics().uploads_already_held
              << std::endl;
  } else if (end == "hold") {
    std::cout << "ready" << std::endl;
    for (;;) pause();
  } else if (end == "fork") {
    const pid_t child = fork();
    if (child == 0) {
      is_child = true;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      UseInChild(weights.slice(0, 0, 16));
      return 0;
    }
    int status = -1;
    waitpid(child, &status, 0);
    Require(status == 0, "the child's end");
    Require((doubled + 1).select(0, 7).item<float>() == 15,
            "the value after the fork");
    Require(djinn::Close().ok(), "Close() in the parent");
  }
  return 0;
}
