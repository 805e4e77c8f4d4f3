#include "common/net/testing/authority.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "openssl/pem.h"
#include "openssl/rand.h"
#include "openssl/x509v3.h"

namespace djinn {
namespace {

EVP_PKEY* MakeKey() { return EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"); }

void AddExtension(X509* certificate, X509* issuer, int id,
                  const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  ASSERT_NE(extension, nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Makes a self-signed certificate when there is no issuer.
X509* MakeCertificate(const std::string& name, const CertificateSpec& spec,
                      EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  uint32_t serial;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial | 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate),
                  absl::ToInt64Seconds(spec.begin));
  X509_gmtime_adj(X509_getm_notAfter(certificate),
                  absl::ToInt64Seconds(spec.end));
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  if (issuer == nullptr) issuer = certificate;
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  X509_set_pubkey(certificate, key);
  if (issuer == certificate) {
    AddExtension(certificate, issuer, NID_basic_constraints,
                 "critical,CA:TRUE");
  } else {
    AddExtension(certificate, issuer, NID_subject_alt_name, spec.names);
  }
  X509_sign(certificate, issuer_key, nullptr);
  return certificate;
}

// Replaces the file, so that a reader sees the old or the new contents.
template <typename WritePem>
void Write(const std::string& path, mode_t mode, WritePem write) {
  const std::string draft = path + ".draft";
  std::FILE* const file =
      fdopen(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC, mode), "w");
  ASSERT_NE(file, nullptr) << path;
  write(file);
  std::fclose(file);
  ASSERT_EQ(std::rename(draft.c_str(), path.c_str()), 0);
}

}  // namespace

Authority::Authority(const std::string& name)
    : folder_(absl::StrCat(testing::TempDir(), "/", name, "-", getpid())),
      ca_file_(folder_ + "/ca.crt"),
      key_(MakeKey()),
      certificate_(MakeCertificate(name, {}, key_, nullptr, key_)) {
  mkdir(folder_.c_str(), 0700);
  Write(ca_file_, 0644,
        [this](std::FILE* file) { PEM_write_X509(file, certificate_); });
}

Authority::~Authority() {
  X509_free(certificate_);
  EVP_PKEY_free(key_);
}

ServerTls Authority::Issue(const std::string& name,
                           const CertificateSpec& spec) {
  ServerTls tls;
  tls.certificate_file = absl::StrCat(folder_, "/", name, ".crt");
  tls.private_key_file = absl::StrCat(folder_, "/", name, ".key");
  EVP_PKEY* const key = MakeKey();
  X509* const certificate =
      MakeCertificate(name, spec, key, certificate_, key_);
  Write(tls.private_key_file, 0600, [key](std::FILE* file) {
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  Write(tls.certificate_file, 0644,
        [certificate](std::FILE* file) { PEM_write_X509(file, certificate); });
  X509_free(certificate);
  EVP_PKEY_free(key);
  return tls;
}

ChannelTls Authority::IssueForChannel(const std::string& name,
                                      const CertificateSpec& spec) {
  const ServerTls own = Issue(name, spec);
  ChannelTls tls = Channel();
  tls.certificate_file = own.certificate_file;
  tls.private_key_file = own.private_key_file;
  return tls;
}

ChannelTls Authority::Channel() const {
  ChannelTls tls;
  tls.ca_file = ca_file_;
  return tls;
}

}  // namespace djinn
