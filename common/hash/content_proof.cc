#include "common/hash/content_proof.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <utility>

namespace djinn {
namespace {

// OpenSSL counts the bytes of one call in an int.
constexpr size_t kMaxPiece = size_t{1} << 30;

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

ContentMac::ContentMac(absl::string_view key) {
  if (key.size() != kContentKeyBytes) return;
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "GMAC", nullptr);
  if (mac == nullptr) return;
  // The context keeps a reference to the algorithm.
  EVP_MAC_CTX* const context = EVP_MAC_CTX_new(mac);
  EVP_MAC_free(mac);
  context_ = std::shared_ptr<void>(context, [](void* owned) {
    EVP_MAC_CTX_free(static_cast<EVP_MAC_CTX*>(owned));
  });
  char cipher[] = "AES-128-GCM";
  unsigned char nonce[12] = {};
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0),
      OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, nonce,
                                        sizeof(nonce)),
      OSSL_PARAM_construct_end()};
  if (context == nullptr ||
      EVP_MAC_init(context, Bytes(key), key.size(), parameters) != 1) {
    context_ = nullptr;
  }
}

void ContentMac::Add(absl::string_view bytes) {
  while (context_ != nullptr && !bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kMaxPiece);
    if (EVP_MAC_update(static_cast<EVP_MAC_CTX*>(context_.get()), Bytes(piece),
                       piece.size()) != 1) {
      context_ = nullptr;
    }
    bytes.remove_prefix(piece.size());
  }
}

std::string ContentMac::Finish() {
  const std::shared_ptr<void> context = std::move(context_);
  std::string mac(kContentMacBytes, '\0');
  size_t size = 0;
  if (context == nullptr ||
      EVP_MAC_final(static_cast<EVP_MAC_CTX*>(context.get()),
                    reinterpret_cast<unsigned char*>(mac.data()), &size,
                    mac.size()) != 1 ||
      size != kContentMacBytes) {
    return "";
  }
  return mac;
}

std::string ProveContent(absl::string_view key, absl::string_view bytes) {
  ContentMac mac(key);
  mac.Add(bytes);
  return mac.Finish();
}

}  // namespace djinn
