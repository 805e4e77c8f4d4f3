#include "common/lease/lease_signer.h"

#include <openssl/evp.h>

#include "common/base/error.h"
#include "common/lease/lease_format.h"

namespace djinn {
namespace {

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

absl::StatusOr<LeaseSigner> LeaseSigner::FromSeed(absl::string_view seed) {
  const auto malformed = [](absl::string_view what) {
    return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_KEY", what);
  };
  if (seed.size() != kSeedBytes) return malformed("a lease key has 32 bytes");
  LeaseSigner signer;
  signer.seed_ = std::string(seed);
  EVP_PKEY* const key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr,
                                                     Bytes(seed), seed.size());
  if (key == nullptr) return malformed("OpenSSL does not take the lease key");
  signer.key_ = std::shared_ptr<void>(
      key, [](void* owned) { EVP_PKEY_free(static_cast<EVP_PKEY*>(owned)); });
  std::string public_key(lease_internal::kPublicKeyBytes, '\0');
  size_t size = public_key.size();
  if (EVP_PKEY_get_raw_public_key(
          key, reinterpret_cast<unsigned char*>(public_key.data()), &size) !=
      1) {
    return malformed("OpenSSL has no public half of the lease key");
  }
  signer.public_key_.set_key_id(lease_internal::KeyId(public_key));
  signer.public_key_.set_public_key(public_key);
  return signer;
}

v1::SignedLease LeaseSigner::Sign(const v1::LeaseClaims& claims) const {
  v1::SignedLease lease;
  lease.set_key_id(id());
  lease.set_claims(claims.SerializeAsString());
  const std::string message = lease_internal::SignedBytes(lease.claims());
  std::string signature(lease_internal::kSignatureBytes, '\0');
  size_t size = signature.size();
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  // Fails only when memory is exhausted. No worker accepts the lease then.
  if (EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr,
                         static_cast<EVP_PKEY*>(key_.get())) == 1 &&
      EVP_DigestSign(context.get(),
                     reinterpret_cast<unsigned char*>(signature.data()), &size,
                     Bytes(message), message.size()) == 1) {
    lease.set_signature(std::move(signature));
  }
  return lease;
}

}  // namespace djinn
