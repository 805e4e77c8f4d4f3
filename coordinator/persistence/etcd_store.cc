#include "coordinator/persistence/etcd_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::coordinator {
namespace {

using ::etcdserverpb::Compare;
using ::etcdserverpb::KeyValue;
using ::etcdserverpb::RangeRequest;
using ::etcdserverpb::RangeResponse;
using ::etcdserverpb::TxnRequest;
using ::etcdserverpb::TxnResponse;

// Limits of one transaction, below etcd's defaults of 128 operations and 1.5
// MiB.
constexpr int kMaxOperations = 100;
constexpr size_t kMaxBytes = size_t{1} << 20;
// Number of keys that one read returns.
constexpr int64_t kPage = 500;
// How often a change is tried again because others changed something else.
constexpr int kTries = 5;

size_t SizeOf(const Store::Write& write) {
  return write.key.size() + (write.value.has_value() ? write.value->size() : 0);
}

absl::Status Busy() {
  return MakeError(absl::StatusCode::kUnavailable, "STORE_IO",
                   "etcd: other processes kept writing");
}

absl::Status Corrupt(absl::string_view key) {
  return MakeError(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                   absl::StrCat("etcd: \"", key, "\" cannot be read"));
}

void AddVersionCheck(const std::string& key, int64_t version, TxnRequest* txn) {
  Compare* const compare = txn->add_compare();
  compare->set_key(key);
  compare->set_target(Compare::MOD);
  compare->set_result(Compare::EQUAL);
  compare->set_mod_revision(version);
}

void AddPut(const std::string& key, std::string value, int64_t lease,
            TxnRequest* txn) {
  etcdserverpb::PutRequest* const put =
      txn->add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(std::move(value));
  put->set_lease(lease);
}

// Removes one key, or all keys with the prefix.
void AddRemoval(const std::string& key, bool prefix, TxnRequest* txn) {
  etcdserverpb::DeleteRangeRequest* const removal =
      txn->add_success()->mutable_request_delete_range();
  removal->set_key(key);
  if (prefix) removal->set_range_end(KeyAfterPrefix(key));
}

std::string PartKey(const std::string& prefix, int part) {
  return absl::StrCat(prefix, absl::StrFormat("%08d", part));
}

}  // namespace

EtcdStore::EtcdStore(std::unique_ptr<EtcdClient> client,
                     const std::string& prefix, RandomSource* random)
    : client_(std::move(client)),
      state_(absl::StrCat(prefix, "/state/")),
      held_(absl::StrCat(prefix, "/held/")),
      term_(absl::StrCat(prefix, "/term/")),
      journal_begun_(absl::StrCat(prefix, "/journal/begun")),
      journal_committed_(absl::StrCat(prefix, "/journal/committed")),
      journal_parts_(absl::StrCat(prefix, "/journal/parts/")),
      random_(random) {}

absl::StatusOr<std::unique_ptr<EtcdStore>> EtcdStore::Make(
    const EtcdOptions& options, RandomSource* random) {
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client,
                         EtcdClient::Make(options.client));
  return absl::WrapUnique(
      new EtcdStore(std::move(client), options.prefix, random));
}

std::string EtcdStore::StateKey(absl::string_view key) const {
  return absl::StrCat(state_, key);
}

absl::StatusOr<std::optional<KeyValue>> EtcdStore::ReadKey(
    const std::string& key, int64_t revision, int64_t* seen) {
  RangeRequest request;
  request.set_key(key);
  request.set_revision(revision);
  DJINN_ASSIGN_OR_RETURN(RangeResponse response, client_->Range(request));
  if (seen != nullptr) *seen = response.header().revision();
  if (response.kvs().empty()) return std::nullopt;
  return std::move(*response.mutable_kvs(0));
}

absl::StatusOr<std::optional<EtcdStore::Journal>> EtcdStore::FindJournal(
    int64_t revision, int64_t* seen) {
  DJINN_ASSIGN_OR_RETURN(const std::optional<KeyValue> found,
                         ReadKey(journal_committed_, revision, seen));
  if (!found.has_value()) return std::nullopt;
  Journal journal;
  const std::vector<std::string> fields = absl::StrSplit(found->value(), ' ');
  if (fields.size() != 2 || !absl::SimpleAtoi(fields[1], &journal.parts) ||
      journal.parts < 1) {
    return Corrupt(journal_committed_);
  }
  journal.name = fields[0];
  journal.version = found->mod_revision();
  return journal;
}

absl::StatusOr<uint64_t> EtcdStore::Finish(const Journal& journal) {
  for (int part = 0; part < journal.parts; ++part) {
    const std::string key =
        PartKey(absl::StrCat(journal_parts_, journal.name, "/"), part);
    DJINN_ASSIGN_OR_RETURN(const std::optional<KeyValue> stored, ReadKey(key));
    TxnRequest txn;
    // A part that is gone was applied by another process, as the transaction
    // then finds out.
    if (stored.has_value() && !txn.ParseFromString(stored->value())) {
      return Corrupt(key);
    }
    AddVersionCheck(journal_committed_, journal.version, &txn);
    if (part + 1 == journal.parts) {
      AddRemoval(journal_committed_, /*prefix=*/false, &txn);
      AddRemoval(journal_begun_, /*prefix=*/false, &txn);
      AddRemoval(journal_parts_, /*prefix=*/true, &txn);
    }
    DJINN_ASSIGN_OR_RETURN(const TxnResponse response, client_->Txn(txn));
    if (!response.succeeded()) return 0;
    if (!stored.has_value()) return Corrupt(key);
    if (part + 1 == journal.parts) {
      return static_cast<uint64_t>(response.header().revision());
    }
  }
  return 0;
}

absl::StatusOr<std::vector<Store::Entry>> EtcdStore::Get(
    absl::string_view prefix) {
  for (int i = 0; i < kTries; ++i) {
    int64_t revision = 0;
    DJINN_ASSIGN_OR_RETURN(const std::optional<Journal> journal,
                           FindJournal(/*revision=*/0, &revision));
    if (journal.has_value()) {
      DJINN_RETURN_IF_ERROR(Finish(*journal).status());
      continue;
    }
    // All pages are read at the revision that had no journal.
    std::vector<Entry> entries;
    RangeRequest request;
    request.set_key(StateKey(prefix));
    request.set_range_end(KeyAfterPrefix(request.key()));
    request.set_limit(kPage);
    request.set_revision(revision);
    for (;;) {
      DJINN_ASSIGN_OR_RETURN(RangeResponse page, client_->Range(request));
      for (KeyValue& found : *page.mutable_kvs()) {
        entries.push_back({found.key().substr(state_.size()),
                           std::move(*found.mutable_value()),
                           static_cast<uint64_t>(found.mod_revision())});
      }
      if (!page.more() || page.kvs().empty()) return entries;
      // The first key after the last one.
      request.set_key(
          absl::StrCat(page.kvs().rbegin()->key(), absl::string_view("\0", 1)));
    }
  }
  return Busy();
}

absl::StatusOr<uint64_t> EtcdStore::PutIf(absl::Span<const Write> writes) {
  std::set<absl::string_view> keys;
  size_t bytes = 0;
  size_t expecting = 0;
  size_t expecting_bytes = 0;
  for (const Write& write : writes) {
    if (write.key.empty() || !keys.insert(write.key).second) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, "STORE_BAD_KEY",
          absl::StrCat("\"", write.key, "\" is empty or written twice"));
    }
    if (SizeOf(write) > kMaxBytes) {
      return MakeError(
          absl::StatusCode::kResourceExhausted, "STORE_FULL",
          absl::StrCat("etcd: \"", write.key, "\" has ", SizeOf(write),
                       " bytes: at most ", kMaxBytes, " are allowed"));
    }
    bytes += SizeOf(write);
    if (write.expected.has_value()) {
      ++expecting;
      expecting_bytes += SizeOf(write);
    }
  }
  // They share one transaction, also when there is a journal.
  if (expecting > kMaxOperations || expecting_bytes > kMaxBytes) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, "STORE_FULL",
        absl::StrCat("etcd: ", expecting, " writes of ", expecting_bytes,
                     " bytes expect versions: at most ", kMaxOperations,
                     " and ", kMaxBytes, " bytes are allowed"));
  }
  return writes.size() <= kMaxOperations && bytes <= kMaxBytes
             ? PutSmall(writes)
             : PutLarge(writes);
}

void EtcdStore::AddCondition(const Write& write, TxnRequest* txn) const {
  if (write.expected.has_value()) {
    AddVersionCheck(StateKey(write.key), static_cast<int64_t>(*write.expected),
                    txn);
  }
}

void EtcdStore::AddChange(const Write& write, TxnRequest* txn) const {
  if (write.value.has_value()) {
    AddPut(StateKey(write.key), *write.value, /*lease=*/0, txn);
  } else {
    AddRemoval(StateKey(write.key), /*prefix=*/false, txn);
  }
}

void EtcdStore::AddGuards(absl::Span<const Write> writes,
                          TxnRequest* txn) const {
  AddVersionCheck(journal_committed_, 0, txn);
  txn->add_failure()->mutable_request_range()->set_key(journal_committed_);
  for (const Write& write : writes) {
    if (!write.expected.has_value()) continue;
    AddCondition(write, txn);
    txn->add_failure()->mutable_request_range()->set_key(StateKey(write.key));
  }
}

absl::Status EtcdStore::Explain(absl::Span<const Write> writes,
                                const TxnResponse& response) {
  if (response.responses().empty()) return Corrupt("a transaction's answer");
  if (!response.responses(0).response_range().kvs().empty()) {
    DJINN_ASSIGN_OR_RETURN(const std::optional<Journal> journal,
                           FindJournal(/*revision=*/0));
    return journal.has_value() ? Finish(*journal).status() : absl::OkStatus();
  }
  int next = 1;
  for (const Write& write : writes) {
    if (!write.expected.has_value()) continue;
    if (next >= response.responses_size()) return Corrupt("a transaction");
    const auto& found = response.responses(next++).response_range().kvs();
    const uint64_t version =
        found.empty() ? 0 : static_cast<uint64_t>(found[0].mod_revision());
    if (version != *write.expected) {
      return MakeError(absl::StatusCode::kAborted, "STORE_CONFLICT",
                       absl::StrCat("\"", write.key, "\" has version ", version,
                                    ", expected is ", *write.expected));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> EtcdStore::PutSmall(absl::Span<const Write> writes) {
  TxnRequest txn;
  AddGuards(writes, &txn);
  for (const Write& write : writes) AddChange(write, &txn);
  for (int i = 0; i < kTries; ++i) {
    DJINN_ASSIGN_OR_RETURN(const TxnResponse response, client_->Txn(txn));
    if (response.succeeded()) {
      return static_cast<uint64_t>(response.header().revision());
    }
    DJINN_RETURN_IF_ERROR(Explain(writes, response));
  }
  return Busy();
}

absl::StatusOr<uint64_t> EtcdStore::PutLarge(absl::Span<const Write> writes) {
  // The last part has the writes that expect versions, so that the revision
  // that removes the journal is theirs.
  std::vector<TxnRequest> parts(1);
  TxnRequest last;
  size_t bytes = 0;
  for (const Write& write : writes) {
    if (write.expected.has_value()) {
      AddChange(write, &last);
      continue;
    }
    if (parts.back().success_size() == kMaxOperations ||
        bytes + SizeOf(write) > kMaxBytes) {
      parts.emplace_back();
      bytes = 0;
    }
    AddChange(write, &parts.back());
    bytes += SizeOf(write);
  }
  parts.push_back(std::move(last));

  for (int i = 0; i < kTries; ++i) {
    Journal journal;
    journal.name = random_->HexId();
    journal.parts = static_cast<int>(parts.size());
    // Removes what a writer left that ended before it committed.
    TxnRequest begin;
    AddVersionCheck(journal_committed_, 0, &begin);
    begin.add_failure()->mutable_request_range()->set_key(journal_committed_);
    AddPut(journal_begun_, journal.name, /*lease=*/0, &begin);
    AddRemoval(journal_parts_, /*prefix=*/true, &begin);
    DJINN_ASSIGN_OR_RETURN(const TxnResponse begun, client_->Txn(begin));
    if (!begun.succeeded()) {
      DJINN_RETURN_IF_ERROR(Explain({}, begun));
      continue;
    }
    for (int part = 0; part < journal.parts; ++part) {
      TxnRequest store;
      AddPut(PartKey(absl::StrCat(journal_parts_, journal.name, "/"), part),
             parts[static_cast<size_t>(part)].SerializeAsString(), /*lease=*/0,
             &store);
      DJINN_RETURN_IF_ERROR(client_->Txn(store).status());
    }
    TxnRequest commit;
    AddGuards(writes, &commit);
    AddVersionCheck(journal_begun_, begun.header().revision(), &commit);
    AddPut(journal_committed_, absl::StrCat(journal.name, " ", journal.parts),
           /*lease=*/0, &commit);
    DJINN_ASSIGN_OR_RETURN(const TxnResponse committed, client_->Txn(commit));
    if (!committed.succeeded()) {
      DJINN_RETURN_IF_ERROR(Explain(writes, committed));
      continue;
    }
    journal.version = committed.header().revision();
    DJINN_ASSIGN_OR_RETURN(const uint64_t revision, Finish(journal));
    if (revision > 0) return revision;
    // Another process has finished the journal, at a revision that is not
    // known here.
    return MakeError(absl::StatusCode::kUnavailable, "STORE_UNREACHABLE",
                     "etcd: another process finished the write");
  }
  return Busy();
}

absl::StatusOr<std::optional<EtcdStore::Held>> EtcdStore::ReadHeld(
    const std::string& key) {
  DJINN_ASSIGN_OR_RETURN(const std::optional<KeyValue> found, ReadKey(key));
  if (!found.has_value()) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> fields =
      absl::StrSplit(found->value(), absl::MaxSplits(' ', 1));
  Held held;
  if (!absl::SimpleAtoi(fields.first, &held.term)) return Corrupt(key);
  held.owner = std::string(fields.second);
  held.lease = found->lease();
  return held;
}

absl::StatusOr<Store::Lease> EtcdStore::Acquire(absl::string_view name,
                                                absl::string_view owner,
                                                absl::Time now,
                                                absl::Duration ttl) {
  const std::string held_key = absl::StrCat(held_, name);
  const std::string term_key = absl::StrCat(term_, name);
  for (int i = 0; i < kTries; ++i) {
    DJINN_ASSIGN_OR_RETURN(const std::optional<Held> held, ReadHeld(held_key));
    if (held.has_value()) {
      if (held->owner != owner) {
        return MakeError(absl::StatusCode::kAborted, "STORE_LEASE_HELD",
                         absl::StrCat("\"", name, "\" is held by ", held->owner,
                                      " until its lease in etcd ends"),
                         {{"owner", held->owner}});
      }
      DJINN_ASSIGN_OR_RETURN(const bool extended,
                             client_->ExtendLease(held->lease));
      if (extended) return Lease{held->term, now + ttl};
      continue;
    }
    DJINN_ASSIGN_OR_RETURN(const std::optional<KeyValue> last,
                           ReadKey(term_key));
    uint64_t term = 0;
    if (last.has_value() && !absl::SimpleAtoi(last->value(), &term)) {
      return Corrupt(term_key);
    }
    ++term;
    DJINN_ASSIGN_OR_RETURN(const int64_t lease, client_->GrantLease(ttl));
    TxnRequest txn;
    AddVersionCheck(held_key, 0, &txn);
    AddVersionCheck(term_key, last.has_value() ? last->mod_revision() : 0,
                    &txn);
    AddPut(held_key, absl::StrCat(term, " ", owner), lease, &txn);
    AddPut(term_key, absl::StrCat(term), /*lease=*/0, &txn);
    const absl::StatusOr<TxnResponse> response = client_->Txn(txn);
    if (response.ok() && response->succeeded()) return Lease{term, now + ttl};
    // The lease ends by itself if it is not ended now.
    client_->RevokeLease(lease).IgnoreError();
    DJINN_RETURN_IF_ERROR(response.status());
  }
  return Busy();
}

absl::Status EtcdStore::Release(absl::string_view name,
                                absl::string_view owner) {
  DJINN_ASSIGN_OR_RETURN(const std::optional<Held> held,
                         ReadHeld(absl::StrCat(held_, name)));
  if (!held.has_value() || held->owner != owner) return absl::OkStatus();
  return client_->RevokeLease(held->lease);
}

}  // namespace djinn::coordinator
