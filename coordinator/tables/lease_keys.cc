#include "coordinator/tables/lease_keys.h"

#include <utility>

#include "common/log/log.h"

namespace djinn::coordinator {
namespace {

constexpr size_t kMaxRetired = 4;

}  // namespace

void LeaseKeys::Learn(const Key& key) {
  // Our own keys are always well-formed.
  verifier_.Learn(key.signer.public_key()).IgnoreError();
}

void LeaseKeys::Restore(std::deque<Key> keys) {
  keys_ = std::move(keys);
  for (const Key& key : keys_) Learn(key);
}

bool LeaseKeys::Update(absl::Time now, uint64_t next_save) {
  bool changed = false;
  if (!keys_.empty() && !IsKept(keys_.back())) keys_.back().since = now;
  if (keys_.empty() || now - keys_.back().since >= lifetime_) {
    Key key = {
        LeaseSigner::FromSeed(random_->Bytes(LeaseSigner::kSeedBytes)).value(),
        now, next_save};
    log::Info("new lease signing key in use", {{"key", key.signer.id()}});
    Learn(key);
    keys_.push_back(std::move(key));
    changed = true;
  }
  while (keys_.size() > 1 && IsKept(keys_.back()) &&
         (keys_.size() > 2 || now - keys_.back().since >= overlap_)) {
    log::Info("lease key retired", {{"key", keys_.front().signer.id()}});
    retired_.push_back(keys_.front().signer.id());
    if (retired_.size() > kMaxRetired) retired_.pop_front();
    keys_.pop_front();
    changed = true;
  }
  return changed;
}

const LeaseSigner& LeaseKeys::current() const {
  for (auto key = keys_.rbegin(); key != keys_.rend(); ++key) {
    if (IsKept(*key)) return key->signer;
  }
  return keys_.front().signer;
}

void LeaseKeys::List(v1::DesiredState* desired) const {
  for (const Key& key : keys_) {
    *desired->add_lease_keys() = key.signer.public_key();
  }
  for (const std::string& key_id : retired_) {
    desired->add_retired_lease_key_ids(key_id);
  }
}

}  // namespace djinn::coordinator
