// Implements a store in an etcd cluster, which several coordinators share.
//
// The keys below the prefix are
//
//   state/KEY         the entries
//   held/NAME         "TERM OWNER", bound to the lease of its holder in etcd
//   term/NAME         the last term of the lease NAME
//   journal/...       writes that are too many for one transaction of etcd
//
// etcd limits the number of operations and bytes of a transaction. More writes
// than that go to a journal first. One transaction commits the journal, and the
// writes are then applied in parts. A process that finds a committed journal
// finishes it before it reads or writes anything, so that a writer that ends
// halfway leaves all of its writes or none.
//
// A lease's time is counted by etcd. The term is kept apart from the lease, so
// it grows for as long as etcd keeps its data.
#ifndef COORDINATOR_PERSISTENCE_ETCD_STORE_H_
#define COORDINATOR_PERSISTENCE_ETCD_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/random.h"
#include "coordinator/persistence/etcd_client.h"
#include "coordinator/persistence/store.h"

namespace djinn::coordinator {

struct EtcdOptions {
  EtcdClientOptions client;
  // The first part of all keys, without a slash at its end.
  std::string prefix = "djinn";
};

class EtcdStore : public Store {
 public:
  // Connects to nothing yet: etcd may be away when a coordinator starts.
  // `random` must outlive the store. Returns MakeChannel()'s errors.
  static absl::StatusOr<std::unique_ptr<EtcdStore>> Make(
      const EtcdOptions& options, RandomSource* random);

  bool persistent() const override { return true; }
  absl::StatusOr<std::vector<Entry>> Get(absl::string_view prefix) override;
  absl::StatusOr<uint64_t> PutIf(absl::Span<const Write> writes) override;
  absl::StatusOr<Lease> Acquire(absl::string_view name, absl::string_view owner,
                                absl::Time now, absl::Duration ttl) override;
  absl::Status Release(absl::string_view name,
                       absl::string_view owner) override;

 private:
  // A committed journal: its name, its number of parts, and the version of the
  // key that says so.
  struct Journal {
    std::string name;
    int parts = 0;
    int64_t version = 0;
  };
  struct Held {
    uint64_t term = 0;
    std::string owner;
    int64_t lease = 0;
  };

  EtcdStore(std::unique_ptr<EtcdClient> client, const std::string& prefix,
            RandomSource* random);

  std::string StateKey(absl::string_view key) const;
  // Returns the key's only entry, or nothing. `revision` 0 means the newest.
  absl::StatusOr<std::optional<etcdserverpb::KeyValue>> ReadKey(
      const std::string& key, int64_t revision = 0, int64_t* seen = nullptr);
  absl::StatusOr<std::optional<Held>> ReadHeld(const std::string& key);

  void AddCondition(const Write& write, etcdserverpb::TxnRequest* txn) const;
  void AddChange(const Write& write, etcdserverpb::TxnRequest* txn) const;
  // Has the transaction fail while there is a journal, and tell then why it
  // failed.
  void AddGuards(absl::Span<const Write> writes,
                 etcdserverpb::TxnRequest* txn) const;
  // Explains a transaction with guards that failed: returns Aborted
  // (STORE_CONFLICT), or OK when a journal was in its way, which it finishes.
  absl::Status Explain(absl::Span<const Write> writes,
                       const etcdserverpb::TxnResponse& response);

  absl::StatusOr<uint64_t> PutSmall(absl::Span<const Write> writes);
  absl::StatusOr<uint64_t> PutLarge(absl::Span<const Write> writes);
  absl::StatusOr<std::optional<Journal>> FindJournal(int64_t revision,
                                                     int64_t* seen = nullptr);
  // Applies a committed journal and removes it. Returns the revision of the
  // removal, or 0 when another process finished it.
  absl::StatusOr<uint64_t> Finish(const Journal& journal);

  const std::unique_ptr<EtcdClient> client_;
  const std::string state_;
  const std::string held_;
  const std::string term_;
  const std::string journal_begun_;
  const std::string journal_committed_;
  const std::string journal_parts_;
  RandomSource* const random_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_ETCD_STORE_H_
