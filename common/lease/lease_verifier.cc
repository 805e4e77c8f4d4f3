#include "common/lease/lease_verifier.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/lease/lease_format.h"

namespace djinn {
namespace {

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

absl::Status Malformed(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_KEY", what);
}

// The error says nothing that helps to guess a lease.
absl::Status Unknown(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_UNKNOWN", why);
}

}  // namespace

namespace lease_internal {

std::string KeyId(absl::string_view public_key) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(Bytes(public_key), public_key.size(), digest.data());
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), sizeof(uint64_t)));
}

}  // namespace lease_internal

const LeaseVerifier::Key* LeaseVerifier::Find(const std::string& key_id) const {
  for (const Key& key : keys_) {
    if (key.id == key_id) return &key;
  }
  return nullptr;
}

absl::Status LeaseVerifier::Learn(const v1::LeaseKey& key) {
  {
    MutexLock lock(&mu_);
    if (Find(key.key_id()) != nullptr) return absl::OkStatus();
  }
  const std::string& bytes = key.public_key();
  if (bytes.size() != lease_internal::kPublicKeyBytes ||
      key.key_id() != lease_internal::KeyId(bytes)) {
    return Malformed("not a lease key, or under another key's name");
  }
  EVP_PKEY* const parsed = EVP_PKEY_new_raw_public_key(
      EVP_PKEY_ED25519, nullptr, Bytes(bytes), bytes.size());
  if (parsed == nullptr)
    return Malformed("OpenSSL does not take the lease key");
  std::shared_ptr<void> owned(
      parsed, [](void* gone) { EVP_PKEY_free(static_cast<EVP_PKEY*>(gone)); });
  MutexLock lock(&mu_);
  keys_.push_back({key.key_id(), std::move(owned)});
  if (keys_.size() > kMaxKeys) keys_.pop_front();
  return absl::OkStatus();
}

void LeaseVerifier::Retire(const std::string& key_id) {
  MutexLock lock(&mu_);
  for (Key& key : keys_) {
    if (key.id == key_id) key.key = nullptr;
  }
}

bool LeaseVerifier::Knows(const std::string& key_id) const {
  MutexLock lock(&mu_);
  const Key* const found = Find(key_id);
  return found != nullptr && found->key != nullptr;
}

absl::StatusOr<v1::LeaseClaims> LeaseVerifier::Verify(
    const v1::SignedLease& lease) const {
  std::shared_ptr<void> key;
  {
    MutexLock lock(&mu_);
    if (const Key* const found = Find(lease.key_id())) key = found->key;
  }
  if (key == nullptr) return Unknown("no known key signed the lease");
  if (lease.signature().size() != lease_internal::kSignatureBytes) {
    return Unknown("the lease is not signed");
  }
  const std::string message = lease_internal::SignedBytes(lease.claims());
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr,
                           static_cast<EVP_PKEY*>(key.get())) != 1 ||
      EVP_DigestVerify(context.get(), Bytes(lease.signature()),
                       lease.signature().size(), Bytes(message),
                       message.size()) != 1) {
    return Unknown("the lease's signature is wrong");
  }
  v1::LeaseClaims claims;
  if (!claims.ParseFromString(lease.claims())) {
    return Unknown("the lease says nothing that can be read");
  }
  return claims;
}

absl::StatusOr<v1::SignedLease> ParseLeaseToken(absl::string_view token) {
  v1::SignedLease lease;
  if (token.empty() ||
      !lease.ParseFromArray(token.data(), static_cast<int>(token.size()))) {
    return Unknown("not a lease");
  }
  return lease;
}

v1::LeaseClaims UncheckedClaims(const v1::SignedLease& lease) {
  v1::LeaseClaims claims;
  if (!claims.ParseFromString(lease.claims())) claims.Clear();
  return claims;
}

}  // namespace djinn
