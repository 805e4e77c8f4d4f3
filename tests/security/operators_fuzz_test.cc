// Calls operators with good and hostile operands through raw messages, as
// tenants of a worker with `isolation.mode: process`, beside a victim that
// checks its own bytes. Nothing of the victim's may appear, and nothing may end
// but the attackers' executors.
//
// DJINN_FUZZ_SEED, DJINN_FUZZ_FIRST (the first call's number), DJINN_FUZZ_CALLS
// and DJINN_FUZZ_OPERATORS (a part of the names) change what is called;
// DJINN_FUZZ_MINUTES ends the run after this time. `./djinn fuzz operators`
// sets them. A call is made from the seed and its number alone.
//
// Where Djinn is built with the address sanitizer, the run also fails on each
// report whose fault lies in Djinn's own code.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/security/operand_maker.h"
#include "tests/security/raw_attack.h"
#include "tests/security/sanitizer_reports.h"
#include "tests/security/walls.h"

namespace djinn {
namespace {

constexpr uint64_t kSeed = 1;
constexpr uint64_t kCalls = 120;
// Few, because a process takes seconds to start; more for a long run, because a
// tenant whose executor has ended waits for the next.
constexpr int kAttackers = 2;
constexpr int kManyAttackers = 6;
constexpr int kCallsPerSession = 30;
// The longest pause after a tenant's deaths; see supervisor.h.
constexpr absl::Duration kLongestPause = absl::Seconds(30);

uint64_t Setting(const char* name, uint64_t fallback) {
  const char* const text = std::getenv(name);
  uint64_t value = fallback;
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &value)) << name;
  return value;
}

std::vector<c10::OperatorHandle> Operators() {
  const char* const part = std::getenv("DJINN_FUZZ_OPERATORS");
  std::map<std::string, c10::OperatorHandle> operators;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!absl::StartsWith(name.name, "aten::")) continue;
    if (part != nullptr && !absl::StrContains(name.name, part)) continue;
    const auto found = dispatcher.findSchema(name);
    if (!found.has_value() || !OperandMaker::Supports(found->schema())) {
      continue;
    }
    operators.emplace(absl::StrCat(name.name, ".", name.overload_name), *found);
  }
  std::vector<c10::OperatorHandle> sorted;
  for (const auto& [name, op] : operators) sorted.push_back(op);
  return sorted;
}

RawCall MakeCall(const std::vector<c10::OperatorHandle>& operators,
                 uint64_t seed, uint64_t number,
                 worker::ProgramTester* tester) {
  OperandMaker maker(seed * 1'000'003 + number);
  const c10::FunctionSchema& schema =
      operators[maker.Below(operators.size())].schema();
  torch::jit::Stack operands = maker.Make(schema);
  return EncodeCall(tester, schema.name(), schema.overload_name(),
                    std::move(operands), 1 + maker.Below(3));
}

class OperatorsFuzz {
 public:
  explicit OperatorsFuzz(int attackers)
      : walls_("{mode: process, executors: 8, node_limit: 10s}", 1, attackers),
        victim_(walls_, "victim") {
    for (int i = 0; i < attackers; ++i) {
      attackers_[absl::StrCat("attacker", i)];
    }
    CheckVictim();
  }

  // Calls the operator as an attacker. Returns what became of it.
  std::string Attack(const RawCall& call) {
    Attacker* const attacker = NextAttacker();
    if (attacker == nullptr) return "no session";
    const std::optional<std::string> outcome =
        Play(call, attacker->client.get(), &last_id_);
    if (!outcome.has_value()) return End(attacker);
    if (++attacker->calls >= kCallsPerSession) attacker->client.reset();
    return *outcome;
  }

  // Expects that the victim has its bytes, and leaves canaries in free memory.
  void CheckVictim() {
    EXPECT_TRUE(victim_.Works());
    EXPECT_FALSE(victim_.control().ended());
    if (canary_ != 0) {
      EXPECT_EQ(ReadBytes(&victim_, canary_, 1, Canaries().size()), Canaries());
      victim_.Send(Free({canary_}));
    }
    canary_ = ++last_id_;
    victim_.Send(Install(canary_, 0, Canaries()));
  }

  // Expects that no other process has ended, and returns how many executors of
  // attackers have.
  int CheckDeaths() {
    int deaths = 0;
    for (const absl::string_view line : absl::StrSplit(walls_.log(), '\n')) {
      if (!absl::StrContains(line, "executor ended")) continue;
      EXPECT_TRUE(absl::StartsWith(FieldOf(line, "tenant"), "attacker"))
          << line;
      ++deaths;
    }
    EXPECT_TRUE(walls_.worker().Running());
    EXPECT_EQ(walls_.Info().state(), v1::WorkerInfo::ACTIVE);
    return deaths;
  }

  // Prints the sanitizers' reports of all processes. Expects that no fault lies
  // in Djinn's own code.
  void CheckReports() {
    for (const std::string& log :
         {WithoutQuotes(walls_.log()), walls_.coordinator_log()}) {
      for (const SanitizerReport& report : SanitizerReports(log)) {
        std::printf("%s\n", report.text.c_str());
        EXPECT_FALSE(report.in_djinn) << report.text;
      }
    }
  }

 private:
  struct Attacker {
    std::unique_ptr<RawClient> client;
    int calls = 0;
    int ends = 0;
    // When the tenant may have another executor.
    absl::Time rested = absl::InfinitePast();
  };

  // Returns an attacker with a session.
  Attacker* NextAttacker() {
    auto best = attackers_.begin();
    for (auto it = attackers_.begin(); it != attackers_.end(); ++it) {
      if (it->second.rested < best->second.rested) best = it;
    }
    Attacker& attacker = best->second;
    absl::SleepFor(attacker.rested - absl::Now());
    if (attacker.client == nullptr) {
      attacker.client = std::make_unique<RawClient>(walls_, best->first);
      attacker.calls = 0;
    }
    if (!attacker.client->control().ended()) return &attacker;
    // The session ended after its last answer. The next call is made in
    // another.
    End(&attacker);
    return nullptr;
  }

  // Forgets the attacker's session, which has ended or does not answer.
  std::string End(Attacker* attacker) {
    const absl::Status end = attacker->client->control().WaitEnd();
    attacker->client.reset();
    std::string reason = ErrorReason(end);
    if (reason != "PROTOCOL_VIOLATION") {
      ++attacker->ends;
      attacker->rested =
          absl::Now() +
          std::min(kLongestPause,
                   absl::Seconds(1 << std::min(attacker->ends, 5)));
    }
    return reason.empty() ? "executor ended" : reason;
  }

  Walls walls_;
  RawClient victim_;
  std::map<std::string, Attacker> attackers_;
  // Not among the ids that RawClient gives.
  uint64_t last_id_ = 1'000'000;
  uint64_t canary_ = 0;
};

TEST(OperatorsFuzz, AttackersHarmOnlyThemselves) {
  const uint64_t seed = Setting("DJINN_FUZZ_SEED", kSeed);
  const uint64_t first = Setting("DJINN_FUZZ_FIRST", 0);
  const uint64_t calls = Setting("DJINN_FUZZ_CALLS", kCalls);
  const uint64_t minutes = Setting("DJINN_FUZZ_MINUTES", 0);
  const absl::Time end =
      minutes == 0 ? absl::InfiniteFuture()
                   : absl::Now() + absl::Minutes(static_cast<int64_t>(minutes));
  const std::vector<c10::OperatorHandle> operators = Operators();
  ASSERT_FALSE(operators.empty());
  worker::ProgramTester tester({.memory_bytes = 1 << 26, .threads = 1});
  OperatorsFuzz fuzz(calls > kCalls ? kManyAttackers : kAttackers);
  std::map<std::string, int> outcomes;
  uint64_t made = 0;
  for (uint64_t i = first;
       made < calls && absl::Now() < end && !testing::Test::HasFailure();
       ++i, ++made) {
    const RawCall call = MakeCall(operators, seed, i, &tester);
    const std::string outcome = fuzz.Attack(call);
    ++outcomes[outcome];
    if (calls != kCalls || outcome == "executor ended") {
      std::printf("%llu %s: %s\n", static_cast<unsigned long long>(i),
                  call.name.c_str(), outcome.c_str());
    }
    if (outcome == "executor ended") {
      std::printf("  %s\n",
                  ToProto(call.encoded.graph).ShortDebugString().c_str());
    }
    std::fflush(stdout);
    if (i % 16 == 15) fuzz.CheckVictim();
  }
  fuzz.CheckVictim();
  fuzz.CheckReports();
  std::printf(
      "%llu calls of %zu operators, seed %llu; executors that ended: "
      "%d\n",
      static_cast<unsigned long long>(made), operators.size(),
      static_cast<unsigned long long>(seed), fuzz.CheckDeaths());
  for (const auto& [outcome, count] : outcomes) {
    std::printf("  %s: %d\n", outcome.c_str(), count);
  }
  // Most calls are made.
  const auto unmade = static_cast<uint64_t>(outcomes["no session"]);
  EXPECT_TRUE(made < kCalls || unmade <= made / 4) << unmade;
  // Calls reach kernels.
  EXPECT_TRUE(made < kCalls || outcomes["done"] > 0);
}

}  // namespace
}  // namespace djinn
