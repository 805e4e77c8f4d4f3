// Sends single operator calls as raw messages, with any operands, and looks for
// bytes of others in all that comes back.
#ifndef TESTS_SECURITY_RAW_ATTACK_H_
#define TESTS_SECURITY_RAW_ATTACK_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/stack.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/srg/proto_codec.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gtest/gtest.h"
#include "tests/security/raw_client.h"

namespace djinn {

// The value that fills a victim's memory.
inline const std::string& Canary() {
  static const auto* const kCanary = new std::string("\xc5 CANARY\x5c");
  return *kCanary;
}
// The largest value that a message holds, and as many bytes of canaries.
inline constexpr uint64_t kMaxValue = 60'000;
inline const std::string& Canaries() {
  static const auto* const kCanaries = [] {
    auto* const all = new std::string;
    while (all->size() + Canary().size() <= kMaxValue) *all += Canary();
    return all;
  }();
  return *kCanaries;
}

// A call as messages: everything but ids.
struct RawCall {
  std::string name;
  worker::EncodedCall encoded;
  // Whether it has results.
  bool has_results = false;
};

// Encodes a call whose results, of unknown shape, are as the schema says. A
// list of results counts for `listed`.
inline RawCall EncodeCall(worker::ProgramTester* tester,
                          const std::string& name, const std::string& overload,
                          torch::jit::Stack operands, size_t listed = 1) {
  RawCall call{absl::StrCat(name, ".", overload),
               tester->Encode(name, overload, std::move(operands), {})};
  const c10::FunctionSchema& schema =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow(name.c_str(), overload.c_str())
          .schema();
  srg::Graph& graph = call.encoded.graph;
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && result.alias_info()->isWrite()) {
      continue;
    }
    const bool list = result.real_type()->kind() == c10::TypeKind::ListType;
    for (size_t i = list ? listed : 1; i > 0; --i) {
      graph.slots.push_back({srg::Slot::Kind::kResult, 0});
      call.encoded.slots.push_back(nullptr);
      graph.nodes[0].results.push_back(
          srg::UnknownResult{static_cast<uint32_t>(graph.slots.size() - 1)});
      call.has_results = true;
    }
  }
  return call;
}

// Returns whether the text holds a canary. The worker replaces the bytes of it
// that are no UTF-8.
inline bool NamesCanary(const std::string& text) {
  return absl::StrContains(text, "CANARY");
}

// Reads the first bytes of a storage. Returns nothing when the stream has
// ended, and nothing else for a poisoned storage than an empty text.
inline std::optional<std::string> ReadBytes(RawClient* client, uint64_t storage,
                                            uint64_t version, uint64_t bytes) {
  v1::TensorView view = View(0, {static_cast<int64_t>(bytes)});
  view.set_data_type(v1::DATA_TYPE_UINT8);
  const uint64_t sequence = client->Send(Read(storage, version, view));
  const auto reply = client->control().Wait([&](const auto& response) {
    return response.has_read() && response.read().sequence() == sequence;
  });
  if (!reply.has_value()) return std::nullopt;
  client->Acknowledge(*reply);
  EXPECT_FALSE(NamesCanary(reply->read().error().message()))
      << "the victim's bytes in the error of a read";
  return reply->read().value();
}

// Makes the call in the client's session, on storages from `*last_id` on.
// Expects no canary in any result, written operand or error; where `found` is
// not null, sets it if a value holds one instead. Returns "done", the reason of
// the operator's error, or nothing when the stream has ended.
inline std::optional<std::string> Play(const RawCall& call, RawClient* client,
                                       uint64_t* last_id,
                                       bool* found = nullptr) {
  v1::Ordered run;
  run.mutable_run()->set_graph_id(++*last_id);
  client->Send(Define(*last_id, ToProto(call.encoded.graph)));
  struct Written {
    uint64_t storage = 0;
    uint64_t version = 0;
    uint64_t bytes = 0;
  };
  std::vector<Written> written;
  const srg::Node& node = call.encoded.node();
  for (uint32_t slot = 0; slot < call.encoded.slots.size(); ++slot) {
    v1::Binding* const binding = run.mutable_run()->add_bindings();
    const uint64_t storage = ++*last_id;
    binding->set_storage(storage);
    const auto in = [slot](const std::vector<uint32_t>& slots) {
      return std::find(slots.begin(), slots.end(), slot) != slots.end();
    };
    switch (call.encoded.graph.slots[slot].kind) {
      case srg::Slot::Kind::kBound: {
        const std::string bytes =
            worker::ProgramTester::BytesOf(*call.encoded.slots[slot]);
        client->Send(bytes.empty() ? Create(storage, 0, 0)
                                   : Install(storage, 0, bytes));
        binding->set_base_version(1);
        binding->set_reads(!in(node.overwrites));
        if (!in(node.writes)) break;
        binding->set_writes(1);
        written.push_back({storage, 2, bytes.size()});
        break;
      }
      case srg::Slot::Kind::kGenerator:
        client->Send(Seed(storage, 0));
        binding->set_base_version(1);
        binding->set_reads(true);
        binding->set_writes(1);
        break;
      default:
        binding->set_writes(1);
        written.push_back({storage, 1, 0});
    }
  }
  for (const double value : call.encoded.floats) {
    run.mutable_run()->add_float_holes(value);
  }
  for (const std::string& value : call.encoded.scalar_tensors) {
    run.mutable_run()->add_scalar_tensors(value);
  }
  run.mutable_run()->set_reply_metadata(call.has_results);
  const uint64_t sequence = client->Send(run);
  std::string outcome = "done";
  if (call.has_results) {
    const auto reply = client->control().Wait([&](const auto& response) {
      return response.has_metadata() &&
             response.metadata().sequence() == sequence;
    });
    if (!reply.has_value()) return std::nullopt;
    const v1::RunMetadata& metadata = reply->metadata();
    if (metadata.has_error()) outcome = metadata.error().reason();
    EXPECT_FALSE(NamesCanary(metadata.error().message()))
        << "the victim's bytes in the error of " << call.name;
    // Results are the last slots.
    const auto sizes = static_cast<size_t>(metadata.storage_bytes_size());
    for (size_t i = 0; i < std::min(sizes, written.size()); ++i) {
      written[written.size() - sizes + i].bytes =
          metadata.storage_bytes(static_cast<int>(i));
    }
  }
  for (const Written& each : written) {
    if (outcome != "done" || each.bytes == 0) continue;
    const auto value = ReadBytes(client, each.storage, each.version,
                                 std::min(each.bytes, kMaxValue));
    if (!value.has_value()) return std::nullopt;
    // Nothing is read of a poisoned storage.
    if (value->empty()) outcome = "poisoned";
    const bool shows = absl::StrContains(*value, Canary());
    if (found != nullptr) *found = *found || shows;
    EXPECT_TRUE(!shows || found != nullptr)
        << "the victim's bytes in a result of " << call.name;
  }
  // Waits for a run without results.
  if (!ReadBytes(client, 1, 1, Values().size()).has_value()) {
    return std::nullopt;
  }
  return outcome;
}

}  // namespace djinn

#endif  // TESTS_SECURITY_RAW_ATTACK_H_
