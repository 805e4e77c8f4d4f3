// console_simulation [WORKERS [RUNS [LOOKS [INTERVAL_MS]]]]
//
// Serves the console of a simulated cluster until its standard input ends, with
// the same two lines of output as `djinnctl console`. It looks LOOKS times
// before it serves, in which it sees RUNS runs.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "coordinator/console/console.h"
#include "coordinator/console/testing/simulated_cluster.h"

namespace djinn::console {
namespace {

int Main(int argc, char** argv) {
  const auto number = [&](int index, int otherwise) {
    return argc > index ? std::atoi(argv[index]) : otherwise;
  };
  const int workers = number(1, 10'000);
  const int runs = number(2, 100'000);
  const int looks = number(3, 20);
  constexpr int kRunsOfSession = 10;
  SimulatedCluster::Options cluster;
  cluster.workers = workers;
  cluster.tenants = 12;
  cluster.sessions = std::max(1, runs / kRunsOfSession);
  cluster.runs = kRunsOfSession;
  cluster.lost_every = 50;
  cluster.migrated_every = 70;
  cluster.clock = Clock::Real();
  Observer::Options observer;
  observer.interval = absl::Milliseconds(number(4, 500));
  observer.sessions_per_round =
      static_cast<size_t>((cluster.sessions + looks - 1) / looks);
  ServerOptions server;
  server.address = "127.0.0.1:0";
  server.access_code = RandomSource::Real()->HexId();
  server.interval = observer.interval;
  const std::string code = server.access_code;
  auto console =
      Console::Start(std::make_unique<SimulatedCluster>(cluster), Clock::Real(),
                     observer, std::move(server), looks);
  if (!console.ok()) {
    std::cerr << console.status() << "\n";
    return 1;
  }
  std::cout << "console on http://" << (*console)->address() << "/\n"
            << "access code " << code << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  return 0;
}

}  // namespace
}  // namespace djinn::console

int main(int argc, char** argv) { return djinn::console::Main(argc, argv); }
