// What a peer can send wrong, over the wire to a real coordinator and a real
// worker: each gets the status or error that the protos promise, and changes
// nothing for anybody else.
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/transport/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/hostile_fixture.h"
#include "tests/e2e/raw_call.h"

namespace djinn {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

// --- Before and at the hello.

struct BadHello {
  const char* name;
  StatusCode code;
  const char* reason;
  std::vector<std::string> texts;
  std::function<void(v1::ClientHello*)> spoil;
};

TEST_F(HostileWireTest, HellosThatAreRefused) {
  const std::vector<BadHello> cases = {
      {"another token",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) { h->set_lease_token(std::string(16, 'x')); }},
      {"no token",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) { h->clear_lease_token(); }},
      {"a prefix of the token",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) { h->mutable_lease_token()->pop_back(); }},
      {"another session's id",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) { h->set_session_id(std::string(32, 'a')); }},
      {"a living session's id",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) {
         h->set_session_id(bystander_->session().id());
       }},
      {"a living session's token",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) {
         h->set_lease_token(bystander_->session().lease().token());
       }},
      {"a later protocol",
       StatusCode::kFailedPrecondition,
       "PROTOCOL_WINDOW",
       {"[1, 1]", "[7, 9]"},
       [](v1::ClientHello* h) { *h->mutable_protocol() = Window(7, 9); }},
      {"no protocol",
       StatusCode::kFailedPrecondition,
       "PROTOCOL_WINDOW",
       {"[1, 1]", "[0, 0]"},
       [](v1::ClientHello* h) { h->clear_protocol(); }},
      {"a protocol window upside down",
       StatusCode::kFailedPrecondition,
       "PROTOCOL_WINDOW",
       {"[1, 1]", "[2, 1]"},
       [](v1::ClientHello* h) { *h->mutable_protocol() = Window(2, 1); }},
      {"another incarnation",
       StatusCode::kFailedPrecondition,
       "WRONG_INCARNATION",
       {},
       [](v1::ClientHello* h) {
         h->set_worker_incarnation(h->worker_incarnation() + 1);
       }},
      {"an older epoch",
       StatusCode::kFailedPrecondition,
       "STALE_EPOCH",
       {},
       [](v1::ClientHello* h) {
         h->set_session_epoch(h->session_epoch() - 1);
       }},
      {"an epoch of the future",
       StatusCode::kFailedPrecondition,
       "STALE_EPOCH",
       {},
       [](v1::ClientHello* h) {
         h->set_session_epoch(h->session_epoch() + 1);
       }},
  };
  const WireSession session(Coordinator(), Token());
  for (const BadHello& test : cases) {
    SCOPED_TRACE(test.name);
    v1::ControlRequest request;
    *request.mutable_hello() = session.Hello();
    test.spoil(request.mutable_hello());
    const auto control = session.OpenControl();
    control->Send(request);
    ExpectStatus(control->WaitEnd(), test.code, test.reason, test.texts);
  }
  // The lease is as good as before.
  v1::ControlRequest request;
  *request.mutable_hello() = session.Hello();
  const auto control = session.OpenControl();
  control->Send(request);
  EXPECT_TRUE(control->Wait(
      [](const v1::ControlResponse& r) { return r.has_hello(); }));
}

TEST_F(HostileWireTest, AMessageBeforeTheHello) {
  const WireSession session(Coordinator(), Token());
  for (const bool empty : {false, true}) {
    const auto control = session.OpenControl();
    v1::ControlRequest request;
    if (!empty) {
      *request.mutable_ordered() = Create(1, 0, 8);
      request.mutable_ordered()->set_sequence(1);
    }
    control->Send(request);
    ExpectStatus(control->WaitEnd(), StatusCode::kInvalidArgument,
                 "PROTOCOL_VIOLATION", {"hello"});
  }
}

TEST_F(HostileWireTest, ASecondStreamOnALease) {
  Client client;
  const auto second = client.session().OpenControl();
  v1::ControlRequest request;
  *request.mutable_hello() = client.session().Hello();
  second->Send(request);
  ExpectStatus(second->WaitEnd(), StatusCode::kFailedPrecondition,
               "LEASE_IN_USE");
  EXPECT_EQ(client.ValueOf(1, 1), Values());
}

// --- Messages that end the stream.

struct Violation {
  const char* name;
  std::function<void(Client*)> act;
};

void SendRun(Client* client, const std::function<void(v1::Run*)>& spoil,
             uint64_t structure = 1) {
  v1::Ordered message = RunOf(structure, 1, 1, 3);
  spoil(message.mutable_run());
  client->Send(message);
}

// A run that is remembered, and one that repeats it.
void SendRepeat(Client* client, const std::function<void(v1::Run*)>& spoil) {
  SendRun(client, [](v1::Run* run) { run->set_remember(true); });
  v1::Ordered message;
  v1::Run* const run = message.mutable_run();
  run->set_structure_id(1);
  run->mutable_repeat()->set_first_new_storage(4);
  run->mutable_repeat()->set_version_sum(1);
  spoil(run);
  client->Send(message);
}

v1::Pull PullOf(const Client& client) {
  v1::Pull pull;
  pull.set_worker_id(client.session().lease().worker_id());
  pull.set_worker_incarnation(client.session().lease().worker_incarnation());
  pull.set_ticket(std::string(16, 'm'));
  pull.set_size_bytes(16);
  return pull;
}

const std::vector<Violation>& Violations() {
  static const auto* const cases = new std::vector<Violation>{
      {"a gap in the sequence",
       [](Client* c) { c->SendAs(40, Create(9, 0, 8)); }},
      {"sequence 0", [](Client* c) { c->SendAs(0, Create(9, 0, 8)); }},
      {"a second hello", [](Client* c) { c->SayHello(c->session().Hello()); }},
      {"an empty message", [](Client* c) { c->control().Send({}); }},
      {"no action", [](Client* c) { c->Send({}); }},

      {"structure 0", [](Client* c) { c->Send(Define(0, Add())); }},
      {"a structure twice", [](Client* c) { c->Send(Define(1, Add())); }},
      {"an unknown structure", [](Client* c) { c->Send(RunOf(99, 1, 1, 3)); }},
      {"no bindings",
       [](Client* c) { SendRun(c, [](v1::Run* r) { r->clear_bindings(); }); }},
      {"a binding too many",
       [](Client* c) {
         SendRun(c, [](v1::Run* r) { r->add_bindings()->set_storage(4); });
       }},
      {"an older version",
       [](Client* c) {
         c->Send(Install(1, 1, Values()));
         c->Send(RunOf(1, 1, 1, 3));
       }},
      {"a version of the future",
       [](Client* c) { c->Send(RunOf(1, 1, 2, 3)); }},
      {"an unknown storage", [](Client* c) { c->Send(RunOf(1, 77, 1, 3)); }},
      {"a bound storage that would be born",
       [](Client* c) { c->Send(RunOf(1, 77, 0, 3)); }},
      {"storage 0", [](Client* c) { c->Send(RunOf(1, 1, 1, 0)); }},
      {"a living storage born again",
       [](Client* c) { c->Send(RunOf(1, 1, 1, 2)); }},
      {"a dead storage born again",
       [](Client* c) {
         c->Send(Free({2}));
         c->Send(RunOf(1, 1, 1, 2));
       }},
      {"a storage in two slots", [](Client* c) { c->Send(RunOf(1, 1, 1, 1)); }},
      {"a result that existed",
       [](Client* c) {
         SendRun(c, [](v1::Run* r) {
           r->mutable_bindings(1)->set_storage(2);
           r->mutable_bindings(1)->set_base_version(1);
         });
       }},
      {"a repeat of nothing",
       [](Client* c) {
         SendRun(c, [](v1::Run* r) {
           r->clear_bindings();
           r->mutable_repeat()->set_first_new_storage(3);
         });
       }},
      {"a repeat with another version",
       [](Client* c) {
         SendRepeat(
             c, [](v1::Run* r) { r->mutable_repeat()->set_version_sum(7); });
       }},
      {"a repeat that makes what was there",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) {
           r->mutable_repeat()->set_first_new_storage(1);
         });
       }},
      {"a repeat of a place there is not",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) { r->mutable_repeat()->set_place(1); });
       }},
      {"a repeat with bindings",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) {
           r->add_bindings()->set_storage(1);
           r->mutable_bindings(0)->set_base_version(1);
           r->mutable_repeat()->set_version_sum(0);
         });
       }},
      {"a repeat of a slot there is not",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) {
           r->mutable_repeat()->add_slot_gaps(2);
           r->mutable_repeat()->add_storages(1);
         });
       }},
      {"a repeat of a slot far beyond",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) {
           r->mutable_repeat()->set_version_sum(0);
           r->mutable_repeat()->add_slot_gaps(0);
           r->mutable_repeat()->add_slot_gaps(UINT32_MAX);
           r->mutable_repeat()->add_storages(1);
           r->mutable_repeat()->add_storages(1);
         });
       }},
      {"a repeat with more storages than slots",
       [](Client* c) {
         SendRepeat(c,
                    [](v1::Run* r) { r->mutable_repeat()->add_storages(1); });
       }},
      {"a repeat with more versions than slots",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) {
           r->mutable_repeat()->set_version_sum(0);
           r->mutable_repeat()->add_slot_gaps(0);
           r->mutable_repeat()->add_storages(1);
           r->mutable_repeat()->add_base_versions(1);
           r->mutable_repeat()->add_base_versions(1);
         });
       }},
      {"a repeat of a storage below 0",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) {
           r->mutable_repeat()->set_version_sum(0);
           r->mutable_repeat()->add_slot_gaps(0);
           r->mutable_repeat()->add_storages(-1);
         });
       }},
      {"a repeat with a float too many",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) { r->add_float_holes(1); });
       }},
      {"a repeat of a float hole there is not",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) {
           r->add_float_holes(1);
           r->mutable_repeat()->add_float_gaps(0);
         });
       }},
      {"a repeat with final slots and those of before",
       [](Client* c) {
         SendRepeat(c, [](v1::Run* r) {
           r->mutable_repeat()->set_same_final_slots(true);
           r->add_final_slots(1);
         });
       }},
      {"a write too many",
       [](Client* c) {
         SendRun(c, [](v1::Run* r) { r->mutable_bindings(0)->set_writes(1); });
       }},
      {"a read denied",
       [](Client* c) {
         SendRun(c,
                 [](v1::Run* r) { r->mutable_bindings(0)->set_reads(false); });
       }},
      {"a float too many",
       [](Client* c) {
         SendRun(c, [](v1::Run* r) { r->add_float_holes(1); });
       }},
      {"a float too few",
       [](Client* c) {
         c->Send(Define(2, AddNumber()));
         c->Send(RunOf(2, 1, 1, 3));
       }},
      {"no scalar tensor",
       [](Client* c) {
         c->Send(Define(2, AddScalarTensor()));
         c->Send(RunOf(2, 1, 1, 3));
       }},
      {"a scalar tensor of the wrong size",
       [](Client* c) {
         c->Send(Define(2, AddScalarTensor()));
         SendRun(c, [](v1::Run* r) { r->add_scalar_tensors("12345678"); }, 2);
       }},
      {"metadata not asked for",
       [](Client* c) {
         c->Send(Define(2, Nonzero()));
         c->Send(RunOf(2, 1, 1, 3));
       }},
      {"metadata of what is known",
       [](Client* c) {
         SendRun(c, [](v1::Run* r) { r->set_reply_metadata(true); });
       }},
      {"a final slot out of range",
       [](Client* c) {
         SendRun(c, [](v1::Run* r) { r->add_final_slots(2); });
       }},
      {"final slots out of order",
       [](Client* c) {
         SendRun(c, [](v1::Run* r) {
           r->add_final_slots(1);
           r->add_final_slots(0);
         });
       }},
      {"an unknown storage for a refused structure",
       [](Client* c) {
         c->Send(Define(2, CallOf(Op("aten::from_file"))));
         c->Send(RunOf(2, 77, 1, 3));
       }},

      {"an install beyond the inline limit",
       [](Client* c) {
         c->Send(
             Install(9, 0, std::string(c->limits().inline_bytes() + 1, 'x')));
       }},
      {"an install without a source",
       [](Client* c) {
         v1::Ordered message = Install(9, 0, "");
         message.mutable_install()->clear_source();
         c->Send(message);
       }},
      {"an install into storage 0",
       [](Client* c) { c->Send(Install(0, 0, Values())); }},
      {"an install into an unknown storage",
       [](Client* c) { c->Send(Install(77, 1, Values())); }},
      {"an install at an older version",
       [](Client* c) {
         c->Send(Install(1, 1, Values()));
         c->Send(Install(1, 1, Values()));
       }},
      {"an install that gives birth again",
       [](Client* c) { c->Send(Install(1, 0, Values())); }},
      {"a seed for a tensor", [](Client* c) { c->Send(Seed(1, 1)); }},
      {"a generator resized",
       [](Client* c) {
         c->Send(Seed(9, 0));
         c->Send(Create(9, 1, 8));
       }},
      {"a generator as an operand",
       [](Client* c) {
         c->Send(Seed(9, 0));
         c->Send(RunOf(1, 9, 1, 3));
       }},
      {"transfer 0", [](Client* c) { c->Send(InstallTransfer(9, 0, 100000)); }},
      {"a transfer of nothing",
       [](Client* c) { c->Send(InstallTransfer(9, 1, 0)); }},
      {"a transfer's id again",
       [](Client* c) {
         c->Send(InstallTransfer(9, 1, uint64_t{1} << 50));
         (void)c->Verdict();
         c->Send(InstallTransfer(10, 1, 100000));
       }},
      {"a read under a transfer's id",
       [](Client* c) {
         c->Send(InstallTransfer(9, 1, uint64_t{1} << 50));
         (void)c->Verdict();
         v1::Ordered message = Read(1, 1);
         message.mutable_read()->set_transfer_id(1);
         c->Send(message);
       }},

      {"a resize of an unknown storage",
       [](Client* c) { c->Send(Create(77, 1, 8)); }},
      {"a read of an unknown storage", [](Client* c) { c->Send(Read(77, 1)); }},
      {"a read of another version", [](Client* c) { c->Send(Read(1, 2)); }},
      {"a large read without a transfer",
       [](Client* c) {
         c->Send(Create(9, 0, 1 << 20));
         c->Send(Read(9, 1, View(0, {1 << 18})));
       }},
      {"a free of an unknown storage", [](Client* c) { c->Send(Free({77})); }},
      {"a free twice",
       [](Client* c) {
         c->Send(Free({2}));
         c->Send(Free({2}));
       }},
      {"a free twice in one message", [](Client* c) { c->Send(Free({2, 2})); }},

      {"an offer under the ticket of a state",
       [](Client* c) {
         v1::Ordered message;
         message.mutable_offer()->set_storage(1);
         message.mutable_offer()->set_version(1);
         message.mutable_offer()->set_ticket(std::string(16, 'm') + 's');
         c->Send(message);
       }},
      {"a pull of a state",
       [](Client* c) {
         v1::Ordered message;
         v1::Install* const install = message.mutable_install();
         install->set_storage(9);
         *install->mutable_pull() = PullOf(*c);
         install->mutable_pull()->mutable_ticket()->push_back('s');
         c->Send(message);
       }},
      {"entering in the middle",
       [](Client* c) {
         v1::Ordered message;
         *message.mutable_migrate()->mutable_enter()->mutable_state() =
             PullOf(*c);
         c->Send(message);
       }},
      {"leaving under a short ticket",
       [](Client* c) {
         v1::Ordered message;
         message.mutable_migrate()->mutable_leave()->set_ticket("m");
         c->Send(message);
       }},
      {"a message behind leaving",
       [](Client* c) {
         v1::Ordered message;
         message.mutable_migrate()->mutable_leave()->set_ticket(
             std::string(16, 'm'));
         c->Send(message);
         c->Send(Free({2}));
       }},

      {"bytes nobody asked for",
       [](Client* c) { c->bulk().Send(Chunk(5, 0, "abc")); }},
      {"bytes out of order",
       [](Client* c) {
         c->Send(InstallTransfer(9, 1, 100000));
         c->WaitDecision(1);
         c->bulk().Send(Chunk(1, 4, "abc"));
       }},
      {"bytes beyond the end",
       [](Client* c) {
         c->Send(InstallTransfer(9, 1, 100000));
         c->WaitDecision(1);
         c->bulk().Send(Chunk(1, 0, std::string(100001, 'x')));
       }},
      {"an empty chunk",
       [](Client* c) {
         c->Send(InstallTransfer(9, 1, 100000));
         c->WaitDecision(1);
         c->bulk().Send(Chunk(1, 0, ""));
       }},
      {"a chunk twice",
       [](Client* c) {
         c->Send(InstallTransfer(9, 1, 2 * kBulkChunkBytes));
         c->WaitDecision(1);
         c->bulk().Send(Chunk(1, 0, std::string(kBulkChunkBytes, 'x')));
         c->bulk().Send(Chunk(1, 0, std::string(kBulkChunkBytes, 'x')));
       }},
  };
  return *cases;
}

TEST_F(HostileWireTest, ViolationsEndTheStream) {
  for (const Violation& test : Violations()) {
    SCOPED_TRACE(test.name);
    Client client;
    test.act(&client);
    ExpectStatus(client.control().WaitEnd(), StatusCode::kInvalidArgument,
                 "PROTOCOL_VIOLATION");
  }
}

TEST_F(HostileWireTest, AFullWindow) {
  Client client;
  // Nothing completes while the worker waits for these bytes.
  client.Send(InstallTransfer(9, 1, 100000));
  ASSERT_TRUE(client.WaitDecision(1));
  for (uint32_t i = 0; i < client.limits().max_outstanding(); ++i) {
    client.Send(Create(100 + i, 0, 8));
  }
  ExpectStatus(client.control().WaitEnd(), StatusCode::kResourceExhausted,
               "WINDOW_EXCEEDED", {"granted are"});
}

// As after a resume, when a client may not know what arrived.
TEST_F(HostileWireTest, AMessageTwiceIsCarriedOutOnce) {
  Client client;
  const uint64_t sequence = client.Send(Create(9, 0, 8));
  client.SendAs(sequence, Create(9, 0, 8));
  client.SendAs(1, Free({1}));
  client.SendAs(sequence + 1, Create(10, 0, 8));
  EXPECT_EQ(client.ValueOf(1, 1), Values());
}

TEST_F(HostileWireTest, ACorruptChunk) {
  Client client;
  client.Send(InstallTransfer(9, 1, 100000));
  ASSERT_TRUE(client.WaitDecision(1));
  v1::BulkChunk chunk = Chunk(1, 0, "abc");
  chunk.set_crc32c(chunk.crc32c() ^ 1);
  client.bulk().Send(chunk);
  ExpectStatus(client.control().WaitEnd(), StatusCode::kDataLoss,
               "CHUNK_CORRUPT");
  ExpectStatus(client.bulk().WaitEnd(), StatusCode::kDataLoss, "CHUNK_CORRUPT");
}

TEST_F(HostileWireTest, AChunkWithoutAChecksumWhereNothingElseProtectsIt) {
  Client client;
  client.Send(InstallTransfer(9, 1, 3));
  ASSERT_TRUE(client.WaitDecision(1));
  v1::BulkChunk chunk = Chunk(1, 0, "abc");
  chunk.clear_crc32c();
  client.bulk().Send(chunk);
  ExpectStatus(client.control().WaitEnd(), StatusCode::kDataLoss,
               "CHUNK_CORRUPT", {"no checksum"});
}

// --- Errors that the stream survives.

struct TypedError {
  const char* name;
  StatusCode code;
  const char* reason;
  std::vector<std::string> texts;
  std::function<void(Client*)> act;
};

v1::Structure Spoiled(const std::function<void(v1::Structure*)>& spoil) {
  v1::Structure structure = Add();
  spoil(&structure);
  return structure;
}

std::vector<TypedError> BadStructures() {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  struct Case {
    const char* name;
    StatusCode code;
    const char* reason;
    std::vector<std::string> texts;
    v1::Structure structure;
  };
  const auto argument = [](v1::Structure* s, int i) {
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
       Spoiled([](v1::Structure* s) {
         s->mutable_operators(0)->set_schema_hash(12345);
       })},
      {"nothing", StatusCode::kInvalidArgument, "MALFORMED_STRUCTURE", {}, {}},
      {"a slot out of range",
       StatusCode::kInvalidArgument,
       "MALFORMED_STRUCTURE",
       {"slot 7"},
       Spoiled([&](v1::Structure* s) {
         argument(s, 0)->mutable_tensor()->set_slot(7);
       })},

      {"an argument too few",
       StatusCode::kInvalidArgument,
       "MALFORMED_STRUCTURE",
       {"aten::add"},
       Spoiled([](v1::Structure* s) {
         s->mutable_nodes(0)->mutable_arguments()->RemoveLast();
       })},
      {"text for a tensor",
       StatusCode::kInvalidArgument,
       "MALFORMED_STRUCTURE",
       {"text"},
       Spoiled([&](v1::Structure* s) { argument(s, 1)->set_text("tensor"); })},

      {"too many calls",
       StatusCode::kResourceExhausted,
       "STRUCTURE_TOO_LARGE",
       {"4096", "5000"},
       Spoiled([](v1::Structure* s) {
         for (int i = 1; i < 5000; ++i) *s->add_nodes() = s->nodes(0);
       })},
  };
  const std::pair<const char*, std::function<void(v1::Structure*)>>
      malformed[] = {
          {"an operator out of range",
           [&](v1::Structure* s) {
             s->mutable_nodes(0)->set_operator_index(1u << 31);
           }},
          {"a slot without a kind",
           [&](v1::Structure* s) { s->mutable_slots(0)->clear_kind(); }},
          {"a kind of slot nobody knows",
           [&](v1::Structure* s) {
             s->mutable_slots(0)->set_kind(static_cast<v1::Slot::Kind>(99));
           }},
          {"a negative size",
           [&](v1::Structure* s) {
             argument(s, 0)->mutable_tensor()->set_sizes(0, -4);
           }},
          {"a negative stride",
           [&](v1::Structure* s) {
             argument(s, 0)->mutable_tensor()->set_strides(0, -1);
           }},
          {"a negative offset",
           [&](v1::Structure* s) {
             argument(s, 0)->mutable_tensor()->set_storage_offset(-1);
           }},
          {"an extent that overflows",
           [&](v1::Structure* s) {
             *argument(s, 0)->mutable_tensor() =
                 View(0, {3, 3}, {kHuge, kHuge});
           }},
          {"an offset that overflows",
           [&](v1::Structure* s) {
             argument(s, 0)->mutable_tensor()->set_storage_offset(kHuge);
           }},
          {"sizes that overflow",
           [&](v1::Structure* s) {
             *s->mutable_nodes(0)->mutable_results(0)->mutable_view() =
                 View(1, {kHuge, kHuge}, {0, 0});
           }},
          {"a dtype nobody knows",
           [&](v1::Structure* s) {
             argument(s, 0)->mutable_tensor()->set_data_type(
                 static_cast<v1::DataType>(77));
           }},
          {"sizes without strides",
           [&](v1::Structure* s) {
             argument(s, 0)->mutable_tensor()->clear_strides();
           }},
          {"an argument without a value",
           [&](v1::Structure* s) { argument(s, 2)->clear_value(); }},
          {"a write that the schema does not make",
           [&](v1::Structure* s) { s->mutable_nodes(0)->add_writes(0); }},
          {"a result too many",
           [&](v1::Structure* s) {
             s->add_slots()->set_kind(v1::Slot::RESULT);
             *s->mutable_nodes(0)->add_results()->mutable_view() = View(2);
           }},
          {"a result in a bound slot",
           [&](v1::Structure* s) {
             s->mutable_nodes(0)->mutable_results(0)->mutable_view()->set_slot(
                 0);
           }},
          {"a hole that is not counted",
           [&](v1::Structure* s) { argument(s, 1)->set_float_hole(0); }},
          {"a draw that does not draw",
           [&](v1::Structure* s) {
             s->add_slots()->set_kind(v1::Slot::GENERATOR);
             s->mutable_nodes(0)->set_implicit_generator_slot(2);
           }},
      };
  std::vector<TypedError> errors;
  for (const Case& test : cases) {
    errors.push_back({test.name, test.code, test.reason, test.texts,
                      [structure = test.structure](Client* c) {
                        c->Send(Define(2, structure));
                      }});
  }
  for (const auto& [name, spoil] : malformed) {
    errors.push_back({name,
                      StatusCode::kInvalidArgument,
                      "MALFORMED_STRUCTURE",
                      {},
                      [structure = Spoiled(spoil)](Client* c) {
                        c->Send(Define(2, structure));
                      }});
  }
  return errors;
}

std::vector<TypedError> BadValues() {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const std::string ten_terabytes = absl::StrCat(uint64_t{10} << 40);
  const std::vector<std::string> numbers = {
      "limit", absl::StrCat(kWorkerMemory), "used", "asked", ten_terabytes};
  return {
      // The plan is cached: only the run's own check can see this.
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
       "MALFORMED_STRUCTURE",
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
      {"bytes that do not have their hash",
       StatusCode::kDataLoss,
       "CONTENT_MISMATCH",
       {},
       [](Client* c) {
         c->Send(InstallTransfer(9, 1, 100000));
         c->WaitDecision(1);
         c->bulk().Send(Chunk(1, 0, std::string(100000, 'x')));
       }},
  };
}

TEST_F(HostileWireTest, ErrorsThatTheStreamSurvives) {
  std::vector<TypedError> cases = BadStructures();
  for (TypedError& test : BadValues()) cases.push_back(std::move(test));
  for (const TypedError& test : cases) {
    SCOPED_TRACE(test.name);
    Client client;
    test.act(&client);
    ExpectStatus(client.Verdict(), test.code, test.reason, test.texts);
    // Nothing changed.
    EXPECT_EQ(client.ValueOf(1, 1), Values());
    client.Send(RunOf(1, 1, 1, 50));
    EXPECT_EQ(client.ValueOf(50, 1), FloatBytes({2, 4, 6, 8}));
  }
}

TEST_F(HostileWireTest, RunsOfARefusedStructurePoisonWhatTheyWouldWrite) {
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

TEST_F(HostileWireTest, AnotherSessionsStorageDoesNotExist) {
  // The bystander's id.
  bystander_->Send(Install(500, 0, Values()));
  EXPECT_EQ(bystander_->ValueOf(500, 1), Values());
  Client client;
  client.Send(Read(500, 1));
  ExpectStatus(client.control().WaitEnd(), StatusCode::kInvalidArgument,
               "PROTOCOL_VIOLATION", {"does not exist"});
  bystander_->Send(Free({500}));
}

// --- Bulk.

TEST_F(HostileWireTest, BulkWithoutAHello) {
  const WireSession session(Coordinator(), Token());
  const auto bulk = session.OpenBulk();
  bulk->Send(Chunk(1, 0, "abc"));
  ExpectStatus(bulk->WaitEnd(), StatusCode::kInvalidArgument,
               "PROTOCOL_VIOLATION", {"hello"});
}

TEST_F(HostileWireTest, ANinthBulkStreamOnALease) {
  Client client;
  const std::string bytes(kBulkChunkBytes + 50000, 'x');
  client.Send(InstallTransfer(9, 1, bytes.size(),
                              HashContent(bytes.data(), bytes.size())));
  ASSERT_TRUE(client.WaitDecision(1));
  client.bulk().Send(Chunk(1, 0, bytes.substr(0, kBulkChunkBytes)));
  std::vector<std::unique_ptr<BulkStream>> others;
  v1::BulkChunk hello;
  hello.mutable_hello()->set_session_id(client.session().id());
  hello.mutable_hello()->set_lease_token(client.session().lease().token());
  for (int i = 0; i < 8; ++i) {
    others.push_back(client.session().OpenBulk());
    others.back()->Send(hello);
  }
  // One of them, whichever came last.
  const BulkStream* refused = nullptr;
  EXPECT_TRUE(Eventually([&] {
    for (const auto& other : others) {
      if (other->ended()) refused = other.get();
    }
    return refused != nullptr;
  }));
  for (const auto& other : others) {
    if (other.get() != refused) {
      EXPECT_FALSE(other->ended());
      continue;
    }
    ExpectStatus(other->WaitEnd(), StatusCode::kFailedPrecondition,
                 "LEASE_IN_USE", {"8 Bulk streams"});
  }
  client.bulk().Send(Chunk(1, kBulkChunkBytes, bytes.substr(kBulkChunkBytes)));
  EXPECT_EQ(client.ValueOf(9, 1), std::string(16, 'x'));
}

// --- The coordinator.

struct BadAttach {
  const char* name;
  StatusCode code;
  const char* reason;
  std::vector<std::string> texts;
  std::function<void(AttachStream*)> act;
};

v1::SessionRequest OpenRequest() {
  v1::SessionRequest request;
  *request.mutable_open()->mutable_protocol() = Window(1, 1);
  return request;
}

TEST_F(HostileWireTest, AttachingWrongly) {
  const std::vector<BadAttach> cases = {
      {"a lease before the session",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         v1::SessionRequest request;
         request.mutable_lease();
         s->Send(request);
       }},
      {"two openings",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         s->Send(OpenRequest());
       }},
      {"nothing",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         s->Send({});
       }},
      {"a later protocol",
       StatusCode::kFailedPrecondition,
       "PROTOCOL_WINDOW",
       {"[1, 1]", "[7, 9]"},
       [](AttachStream* s) {
         v1::SessionRequest request = OpenRequest();
         *request.mutable_open()->mutable_protocol() = Window(7, 9);
         s->Send(request);
       }},
      {"an id that is none",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         v1::SessionRequest request = OpenRequest();
         request.mutable_open()->set_resume_session_id("../../etc/passwd");
         s->Send(request);
       }},
      {"device four billion",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         v1::SessionRequest request;
         request.mutable_lease()->set_virtual_device(~0u);
         s->Send(request);
       }},
      {"a lease given back that has no name",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         v1::SessionRequest request;
         request.mutable_returned();
         s->Send(request);
       }},
      {"a structure that is none",
       StatusCode::kInvalidArgument,
       "MALFORMED_STRUCTURE",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         v1::SessionRequest request;
         *request.mutable_structure() = Add();
         request.mutable_structure()->mutable_nodes(0)->set_operator_index(9);
         s->Send(request);
       }},
  };
  for (const BadAttach& test : cases) {
    SCOPED_TRACE(test.name);
    const auto attach = OpenAttach(Coordinator(), Token());
    test.act(attach.get());
    ExpectStatus(attach->WaitEnd(), test.code, test.reason, test.texts);
  }
}

TEST_F(HostileWireTest, EveryServiceWantsItsOwnToken) {
  const std::string admin =
      ReadFirstWord(environment->cluster().admin_token_file());
  for (const std::string& token : {admin, std::string("guess")}) {
    const auto attach = OpenAttach(Coordinator(), token);
    attach->Send(OpenRequest());
    ExpectStatus(attach->WaitEnd(), StatusCode::kUnauthenticated,
                 "TOKEN_UNKNOWN");
  }
  const std::string attach = "/djinn.v1.Session/Attach";
  EXPECT_EQ(CallRaw(Coordinator(), attach, {""}).code(),
            StatusCode::kUnauthenticated);
  for (const std::string method :
       {"/djinn.v1.WorkerRegistry/Synchronize", "/djinn.v1.Admin/ListWorkers",
        "/djinn.v1.Admin/ListSessions", "/djinn.v1.Admin/GetGraph"}) {
    for (const std::string& token : {Token(), std::string("guess")}) {
      const absl::Status status = CallRaw(Coordinator(), method, {""}, token);
      ExpectStatus(status, StatusCode::kUnauthenticated, "TOKEN_UNKNOWN");
    }
  }
}

// Last: it waits until the worker stops waiting for the right client.
TEST_F(HostileWireTest, BulkUnderAnotherToken) {
  Client client;
  const auto bulk = client.session().OpenBulk();
  v1::BulkChunk hello;
  hello.mutable_hello()->set_session_id(client.session().id());
  hello.mutable_hello()->set_lease_token(std::string(16, 'x'));
  bulk->Send(hello);
  client.Send(InstallTransfer(
      9, 1, 100000, HashContent(std::string(100000, 'y').data(), 100000)));
  ASSERT_TRUE(client.WaitDecision(1));
  bulk->Send(Chunk(1, 0, std::string(100000, 'x')));
  EXPECT_FALSE(bulk->WaitEnd().ok());
  // Nobody took those bytes for the client's: the transfer still waits.
  const std::string bytes(100000, 'y');
  client.bulk().Send(Chunk(1, 0, bytes));
  EXPECT_EQ(client.ValueOf(9, 1), std::string(16, 'y'));
}

}  // namespace
}  // namespace djinn
