// Sends requests that a real worker refuses without ending the stream. Each
// gets the error that the protos promise and does not affect other sessions.
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/hostile_fixture.h"

namespace djinn {
namespace {

using absl::StatusCode;
using HostileErrorsTest = HostileWireTest;

struct TypedError {
  const char* name;
  StatusCode code;
  const char* reason;
  std::vector<std::string> texts;
  std::function<void(Client*)> act;
};

v1::Graph Spoiled(const std::function<void(v1::Graph*)>& spoil) {
  v1::Graph graph = Add();
  spoil(&graph);
  return graph;
}

std::vector<TypedError> BadGraphs() {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  struct Case {
    const char* name;
    StatusCode code;
    const char* reason;
    std::vector<std::string> texts;
    v1::Graph graph;
  };
  const auto argument = [](v1::Graph* s, int i) {
    return s->mutable_nodes(0)->mutable_arguments(i);
  };
  const std::vector<Case> cases = {
      {"a file",
       StatusCode::kPermissionDenied,
       "OPERATOR_REFUSED",
       {"aten::from_file"},
       CallOf(Op("aten::from_file"))},
      {"a resize",
       StatusCode::kPermissionDenied,
       "OPERATOR_REFUSED",
       {"aten::resize_"},
       CallOf(Op("aten::resize_"))},
      {"an unknown operator",
       StatusCode::kFailedPrecondition,
       "OPERATOR_UNKNOWN",
       {"aten::no_such"},
       CallOf(Op("aten::no_such"))},
      {"an unknown overload",
       StatusCode::kFailedPrecondition,
       "OPERATOR_UNKNOWN",
       {"aten::add.no_such"},
       CallOf(Op("aten::add", "no_such"))},
      {"another schema",
       StatusCode::kFailedPrecondition,
       "SCHEMA_MISMATCH",
       {"aten::add"},
       Spoiled([](v1::Graph* s) {
         s->mutable_operators(0)->set_schema_hash(12345);
       })},
      {"nothing", StatusCode::kInvalidArgument, "MALFORMED_GRAPH", {}, {}},
      {"a slot out of range",
       StatusCode::kInvalidArgument,
       "MALFORMED_GRAPH",
       {"slot 7"},
       Spoiled([&](v1::Graph* s) {
         argument(s, 0)->mutable_tensor()->set_slot(7);
       })},

      {"an argument too few",
       StatusCode::kInvalidArgument,
       "MALFORMED_GRAPH",
       {"aten::add"},
       Spoiled([](v1::Graph* s) {
         s->mutable_nodes(0)->mutable_arguments()->RemoveLast();
       })},
      {"text for a tensor",
       StatusCode::kInvalidArgument,
       "MALFORMED_GRAPH",
       {"text"},
       Spoiled([&](v1::Graph* s) { argument(s, 1)->set_text("tensor"); })},

      {"too many calls",
       StatusCode::kResourceExhausted,
       "GRAPH_TOO_LARGE",
       {"4096", "5000"},
       Spoiled([](v1::Graph* s) {
         for (int i = 1; i < 5000; ++i) *s->add_nodes() = s->nodes(0);
       })},
  };
  const std::pair<const char*, std::function<void(v1::Graph*)>> malformed[] = {
      {"an operator out of range",
       [&](v1::Graph* s) {
         s->mutable_nodes(0)->set_operator_index(1u << 31);
       }},
      {"a slot without a kind",
       [&](v1::Graph* s) { s->mutable_slots(0)->clear_kind(); }},
      {"a kind of slot nobody knows",
       [&](v1::Graph* s) {
         s->mutable_slots(0)->set_kind(static_cast<v1::Slot::Kind>(99));
       }},
      {"a negative size",
       [&](v1::Graph* s) {
         argument(s, 0)->mutable_tensor()->set_sizes(0, -4);
       }},
      {"a negative stride",
       [&](v1::Graph* s) {
         argument(s, 0)->mutable_tensor()->set_strides(0, -1);
       }},
      {"a negative offset",
       [&](v1::Graph* s) {
         argument(s, 0)->mutable_tensor()->set_storage_offset(-1);
       }},
      {"an extent that overflows",
       [&](v1::Graph* s) {
         *argument(s, 0)->mutable_tensor() = View(0, {3, 3}, {kHuge, kHuge});
       }},
      {"an offset that overflows",
       [&](v1::Graph* s) {
         argument(s, 0)->mutable_tensor()->set_storage_offset(kHuge);
       }},
      {"sizes that overflow",
       [&](v1::Graph* s) {
         *s->mutable_nodes(0)->mutable_results(0)->mutable_view() =
             View(1, {kHuge, kHuge}, {0, 0});
       }},
      {"a dtype nobody knows",
       [&](v1::Graph* s) {
         argument(s, 0)->mutable_tensor()->set_data_type(
             static_cast<v1::DataType>(77));
       }},
      {"sizes without strides",
       [&](v1::Graph* s) {
         argument(s, 0)->mutable_tensor()->clear_strides();
       }},
      {"an argument without a value",
       [&](v1::Graph* s) { argument(s, 2)->clear_value(); }},
      {"a write that the schema does not make",
       [&](v1::Graph* s) { s->mutable_nodes(0)->add_writes(0); }},
      {"a result too many",
       [&](v1::Graph* s) {
         s->add_slots()->set_kind(v1::Slot::RESULT);
         *s->mutable_nodes(0)->add_results()->mutable_view() = View(2);
       }},
      {"a result in a bound slot",
       [&](v1::Graph* s) {
         s->mutable_nodes(0)->mutable_results(0)->mutable_view()->set_slot(0);
       }},
      {"a hole that is not counted",
       [&](v1::Graph* s) { argument(s, 1)->set_float_hole(0); }},
      {"a draw that does not draw",
       [&](v1::Graph* s) {
         s->add_slots()->set_kind(v1::Slot::GENERATOR);
         s->mutable_nodes(0)->set_implicit_generator_slot(2);
       }},
  };
  std::vector<TypedError> errors;
  for (const Case& test : cases) {
    errors.push_back(
        {test.name, test.code, test.reason, test.texts,
         [graph = test.graph](Client* c) { c->Send(Define(2, graph)); }});
  }
  for (const auto& [name, spoil] : malformed) {
    errors.push_back(
        {name,
         StatusCode::kInvalidArgument,
         "MALFORMED_GRAPH",
         {},
         [graph = Spoiled(spoil)](Client* c) { c->Send(Define(2, graph)); }});
  }
  return errors;
}

std::vector<TypedError> BadValues() {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const std::string ten_terabytes = absl::StrCat(uint64_t{10} << 40);
  const std::vector<std::string> numbers = {
      "limit", absl::StrCat(kWorkerMemory), "used", "asked", ten_terabytes};
  return {
      // The plan is cached, so only the check of the run can detect this.
      {"a view out of its storage in a later run",
       StatusCode::kInvalidArgument,
       "INVALID_VIEW",
       {"storage 9 has 8"},
       [](Client* c) {
         c->Send(Create(9, 0, 8));
         c->Send(RunOf(1, 9, 1, 3));
       }},
      {"a view out of what was resized",
       StatusCode::kInvalidArgument,
       "INVALID_VIEW",
       {"storage 9 has 8"},
       [](Client* c) {
         c->Send(Create(9, 0, 16));
         c->Send(RunOf(1, 9, 1, 3));
         c->Send(Create(9, 1, 8));
         c->Send(RunOf(1, 9, 2, 4));
       }},
      {"a read out of its storage",
       StatusCode::kInvalidArgument,
       "INVALID_VIEW",
       {"storage 1 has 16"},
       [](Client* c) { c->Send(Read(1, 1, View(0, {5}))); }},
      {"a read behind its storage",
       StatusCode::kInvalidArgument,
       "INVALID_VIEW",
       {},
       [](Client* c) { c->Send(Read(1, 1, View(0, {1}, {1}, 4))); }},
      {"a read of a negative size",
       StatusCode::kInvalidArgument,
       "INVALID_VIEW",
       {},
       [](Client* c) { c->Send(Read(1, 1, View(0, {-1}))); }},
      {"a read that overflows",
       StatusCode::kInvalidArgument,
       "INVALID_VIEW",
       {},
       [](Client* c) { c->Send(Read(1, 1, View(0, {2}, {kHuge}, kHuge))); }},
      {"a read of no dtype",
       StatusCode::kInvalidArgument,
       "MALFORMED_GRAPH",
       {},
       [](Client* c) {
         v1::Ordered message = Read(1, 1);
         message.mutable_read()->mutable_view()->clear_data_type();
         c->Send(message);
       }},
      {"a read of an expanded terabyte",
       StatusCode::kResourceExhausted,
       "SESSION_MEMORY",
       {},
       [](Client* c) {
         c->Send(Read(1, 1, View(0, {int64_t{1} << 38}, {0})));
       }},
      {"a storage of ten terabytes", StatusCode::kResourceExhausted,
       "SESSION_MEMORY", numbers,
       [](Client* c) { c->Send(Create(9, 0, uint64_t{10} << 40)); }},
      {"a storage of all bytes there are",
       StatusCode::kResourceExhausted,
       "SESSION_MEMORY",
       {"limit", "used", "asked"},
       [](Client* c) { c->Send(Create(9, 0, ~uint64_t{0})); }},
      {"a transfer of ten terabytes", StatusCode::kResourceExhausted,
       "SESSION_MEMORY", numbers,
       [](Client* c) { c->Send(InstallTransfer(9, 1, uint64_t{10} << 40)); }},
  };
}

TEST_F(HostileErrorsTest, ErrorsThatTheStreamSurvives) {
  std::vector<TypedError> cases = BadGraphs();
  for (TypedError& test : BadValues()) cases.push_back(std::move(test));
  for (const TypedError& test : cases) {
    SCOPED_TRACE(test.name);
    Client client;
    test.act(&client);
    ExpectStatus(client.Verdict(), test.code, test.reason, test.texts);
    // The refused message changed nothing.
    EXPECT_EQ(client.ValueOf(1, 1), Values());
    client.Send(RunOf(1, 1, 1, 50));
    EXPECT_EQ(client.ValueOf(50, 1), FloatBytes({2, 4, 6, 8}));
  }
}

TEST_F(HostileErrorsTest, RunsOfARefusedGraphPoisonWhatTheyWouldWrite) {
  Client client;
  client.Send(Define(2, CallOf(Op("aten::from_file"))));
  client.Send(RunOf(2, 1, 1, 3));
  const uint64_t read = client.Send(Read(3, 1));
  const auto refused = client.control().Wait(
      [](const v1::ControlResponse& r) { return r.admitted().has_refused(); });
  const auto reply = client.control().Wait([&](const v1::ControlResponse& r) {
    return r.read().sequence() == read;
  });
  ASSERT_TRUE(refused.has_value() && reply.has_value());
  EXPECT_EQ(reply->read().error().error_id(),
            refused->admitted().refused().error_id());
  EXPECT_EQ(client.ValueOf(1, 1), Values());
}

TEST_F(HostileErrorsTest, AnotherSessionsStorageDoesNotExist) {
  // Uses the id of the bystander's storage.
  bystander_->Send(Install(500, 0, Values()));
  EXPECT_EQ(bystander_->ValueOf(500, 1), Values());
  Client client;
  client.Send(Read(500, 1));
  ExpectStatus(client.control().WaitEnd(), StatusCode::kInvalidArgument,
               "PROTOCOL_VIOLATION", {"does not exist"});
  bystander_->Send(Free({500}));
}

}  // namespace
}  // namespace djinn
