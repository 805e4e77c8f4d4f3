// Sends messages that violate the protocol to a real worker over the wire. Each
// violation ends the stream with the status that the protos promise, and does
// not affect other sessions.
#include <functional>
#include <string>
#include <vector>

#include "common/transport/stream.h"
#include "gtest/gtest.h"
#include "tests/e2e/hostile_fixture.h"

namespace djinn {
namespace {

using absl::StatusCode;
using HostileViolationsTest = HostileWireTest;

struct Violation {
  const char* name;
  std::function<void(Client*)> act;
};

void SendRun(Client* client, const std::function<void(v1::Run*)>& spoil,
             uint64_t graph = 1) {
  v1::Ordered message = RunOf(graph, 1, 1, 3);
  spoil(message.mutable_run());
  client->Send(message);
}

// Sends a run that is remembered, and a repeat of it that `spoil` changes.
void SendRepeat(Client* client, const std::function<void(v1::Run*)>& spoil) {
  SendRun(client, [](v1::Run* run) { run->set_remember(true); });
  v1::Ordered message;
  v1::Run* const run = message.mutable_run();
  run->set_graph_id(1);
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

      {"graph 0", [](Client* c) { c->Send(Define(0, Add())); }},
      {"a graph twice", [](Client* c) { c->Send(Define(1, Add())); }},
      {"an unknown graph", [](Client* c) { c->Send(RunOf(99, 1, 1, 3)); }},
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
      {"a bound storage that would be created",
       [](Client* c) { c->Send(RunOf(1, 77, 0, 3)); }},
      {"storage 0", [](Client* c) { c->Send(RunOf(1, 1, 1, 0)); }},
      {"a living storage created again",
       [](Client* c) { c->Send(RunOf(1, 1, 1, 2)); }},
      {"a dead storage created again",
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
      {"an unknown storage for a refused graph",
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
      {"an install that creates it again",
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

TEST_F(HostileViolationsTest, ViolationsEndTheStream) {
  for (const Violation& test : Violations()) {
    SCOPED_TRACE(test.name);
    Client client;
    test.act(&client);
    ExpectStatus(client.control().WaitEnd(), StatusCode::kInvalidArgument,
                 "PROTOCOL_VIOLATION");
  }
}

TEST_F(HostileViolationsTest, AFullWindow) {
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

// After a resume, a client may send a message a second time because it does not
// know what arrived.
TEST_F(HostileViolationsTest, RepeatedMessageIsExecutedOnce) {
  Client client;
  const uint64_t sequence = client.Send(Create(9, 0, 8));
  client.SendAs(sequence, Create(9, 0, 8));
  client.SendAs(1, Free({1}));
  client.SendAs(sequence + 1, Create(10, 0, 8));
  EXPECT_EQ(client.ValueOf(1, 1), Values());
}

TEST_F(HostileViolationsTest, ACorruptChunk) {
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

TEST_F(HostileViolationsTest,
       AChunkWithoutAChecksumWhereNothingElseProtectsIt) {
  Client client;
  client.Send(InstallTransfer(9, 1, 3));
  ASSERT_TRUE(client.WaitDecision(1));
  v1::BulkChunk chunk = Chunk(1, 0, "abc");
  chunk.clear_crc32c();
  client.bulk().Send(chunk);
  ExpectStatus(client.control().WaitEnd(), StatusCode::kDataLoss,
               "CHUNK_CORRUPT", {"no checksum"});
}

}  // namespace
}  // namespace djinn
