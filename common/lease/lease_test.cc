#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string>

#include "absl/strings/escaping.h"
#include "common/base/error.h"
#include "common/lease/lease_format.h"
#include "common/lease/lease_signer.h"
#include "common/lease/lease_verifier.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

LeaseSigner Signer(char fill = 's') {
  return LeaseSigner::FromSeed(std::string(32, fill)).value();
}

v1::LeaseClaims Claims() {
  v1::LeaseClaims claims;
  claims.set_lease_id("lease");
  claims.set_tenant("red");
  claims.set_session_id("session");
  claims.set_worker_id("w0");
  return claims;
}

class LeaseTest : public testing::Test {
 protected:
  LeaseTest() {
    EXPECT_TRUE(verifier_.Learn(signer_.public_key()).ok());
    lease_ = signer_.Sign(Claims());
  }
  void ExpectUnknown(const v1::SignedLease& lease) {
    const absl::Status status = verifier_.Verify(lease).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(ErrorReason(status), "LEASE_UNKNOWN");
  }

  const LeaseSigner signer_ = Signer();
  LeaseVerifier verifier_;
  v1::SignedLease lease_;
};

TEST_F(LeaseTest, KeyIsTheOneOfRfc8032) {
  // RFC 8032, section 7.1, test 1.
  const LeaseSigner signer =
      LeaseSigner::FromSeed(
          absl::HexStringToBytes("9d61b19deffd5a60ba844af492ec2cc4"
                                 "4449c5697b326919703bac031cae7f60"))
          .value();
  EXPECT_EQ(absl::BytesToHexString(signer.public_key().public_key()),
            "d75a980182b10ab7d54bfed3c964073a"
            "0ee172f3daa62325af021a68f707511a");
}

TEST_F(LeaseTest, SaysWhatWasSigned) {
  const absl::StatusOr<v1::LeaseClaims> claims = verifier_.Verify(lease_);
  ASSERT_TRUE(claims.ok()) << claims.status();
  EXPECT_EQ(claims->SerializeAsString(), Claims().SerializeAsString());
}

TEST_F(LeaseTest, EveryChangedBitIsNoticed) {
  for (size_t i = 0; i < lease_.claims().size(); ++i) {
    v1::SignedLease changed = lease_;
    changed.mutable_claims()->at(i) ^= 1;
    ExpectUnknown(changed);
  }
  for (size_t i = 0; i < lease_.signature().size(); ++i) {
    v1::SignedLease changed = lease_;
    changed.mutable_signature()->at(i) ^= 0x80;
    ExpectUnknown(changed);
  }
}

TEST_F(LeaseTest, TruncatedAndLengthenedOnesAreRefused) {
  for (size_t size : {0, 1, 63}) {
    v1::SignedLease changed = lease_;
    changed.mutable_signature()->resize(size);
    ExpectUnknown(changed);
  }
  v1::SignedLease changed = lease_;
  changed.mutable_signature()->push_back('\0');
  ExpectUnknown(changed);
  changed = lease_;
  changed.mutable_claims()->pop_back();
  ExpectUnknown(changed);
  const std::string token = lease_.SerializeAsString();
  for (size_t size = 0; size < token.size(); ++size) {
    const absl::StatusOr<v1::SignedLease> parsed =
        ParseLeaseToken(token.substr(0, size));
    if (parsed.ok()) ExpectUnknown(*parsed);
  }
}

TEST_F(LeaseTest, OtherKeysSignaturesAreRefused) {
  const LeaseSigner other = Signer('o');
  ExpectUnknown(other.Sign(Claims()));
  // A forged signature under the name of a known key is refused, too.
  v1::SignedLease disguised = other.Sign(Claims());
  disguised.set_key_id(signer_.id());
  ExpectUnknown(disguised);
  v1::SignedLease nameless = lease_;
  nameless.clear_key_id();
  ExpectUnknown(nameless);
}

TEST_F(LeaseTest, OtherAlgorithmsAreRefused) {
  const std::string message = lease_internal::SignedBytes(lease_.claims());
  // A MAC whose key is the public key, as long as a signature.
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int mac_size = 0;
  const std::string& public_key = signer_.public_key().public_key();
  HMAC(EVP_sha512(), public_key.data(), static_cast<int>(public_key.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
       mac, &mac_size);
  ASSERT_EQ(mac_size, 64u);
  v1::SignedLease changed = lease_;
  changed.set_signature(mac, mac_size);
  ExpectUnknown(changed);
  // An ECDSA signature of the same bytes.
  EVP_PKEY* const ec = EVP_EC_gen("P-256");
  ASSERT_NE(ec, nullptr);
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  unsigned char signature[128];
  size_t size = sizeof(signature);
  ASSERT_EQ(EVP_DigestSignInit(context, nullptr, EVP_sha256(), nullptr, ec), 1);
  ASSERT_EQ(
      EVP_DigestSign(context, signature, &size,
                     reinterpret_cast<const unsigned char*>(message.data()),
                     message.size()),
      1);
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(ec);
  changed.set_signature(signature, size);
  ExpectUnknown(changed);
  changed.set_signature(signature, 64);
  ExpectUnknown(changed);
  // An all-zero signature, which is a forgery if small-order keys are accepted.
  changed.set_signature(std::string(64, '\0'));
  ExpectUnknown(changed);
}

TEST_F(LeaseTest, SignatureIsOfLeasesAlone) {
  // The bytes without their domain, signed with the right key.
  EVP_PKEY* const key = EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nullptr,
      reinterpret_cast<const unsigned char*>(signer_.seed().data()), 32);
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  unsigned char signature[64];
  size_t size = sizeof(signature);
  ASSERT_EQ(EVP_DigestSignInit(context, nullptr, nullptr, nullptr, key), 1);
  ASSERT_EQ(EVP_DigestSign(
                context, signature, &size,
                reinterpret_cast<const unsigned char*>(lease_.claims().data()),
                lease_.claims().size()),
            1);
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
  v1::SignedLease changed = lease_;
  changed.set_signature(signature, size);
  ExpectUnknown(changed);
}

TEST_F(LeaseTest, RotatesThroughTwoKeys) {
  const LeaseSigner next = Signer('n');
  ASSERT_TRUE(verifier_.Learn(next.public_key()).ok());
  EXPECT_TRUE(verifier_.Verify(lease_).ok());
  EXPECT_TRUE(verifier_.Verify(next.Sign(Claims())).ok());
  verifier_.Retire(signer_.id());
  ExpectUnknown(lease_);
  EXPECT_TRUE(verifier_.Verify(next.Sign(Claims())).ok());
  // A retired key stays retired.
  ASSERT_TRUE(verifier_.Learn(signer_.public_key()).ok());
  ExpectUnknown(lease_);
  EXPECT_FALSE(verifier_.Knows(signer_.id()));
}

TEST_F(LeaseTest, KeepsAFewKeys) {
  for (size_t i = 1; i < LeaseVerifier::kMaxKeys; ++i) {
    ASSERT_TRUE(
        verifier_.Learn(Signer(static_cast<char>(i)).public_key()).ok());
  }
  EXPECT_TRUE(verifier_.Verify(lease_).ok());
  ASSERT_TRUE(verifier_.Learn(Signer('x').public_key()).ok());
  ExpectUnknown(lease_);
}

TEST_F(LeaseTest, KeysThatAreNone) {
  v1::LeaseKey key = Signer('k').public_key();
  key.set_key_id(signer_.id() + "0");
  EXPECT_EQ(ErrorReason(verifier_.Learn(key)), "MALFORMED_KEY");
  key = Signer('k').public_key();
  key.mutable_public_key()->pop_back();
  EXPECT_EQ(ErrorReason(verifier_.Learn(key)), "MALFORMED_KEY");
  EXPECT_EQ(ErrorReason(LeaseSigner::FromSeed("short").status()),
            "MALFORMED_KEY");
}

}  // namespace
}  // namespace djinn
