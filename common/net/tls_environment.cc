// Apart from tls_config.cc, so that programs link no reader of configurations.
#include <cstdlib>
#include <string>

#include "common/net/tls_config.h"

namespace djinn {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

ChannelTls ChannelTlsFromEnvironment() {
  return {Variable("DJINN_TLS_CA_FILE"), Variable("DJINN_TLS_CERTIFICATE_FILE"),
          Variable("DJINN_TLS_PRIVATE_KEY_FILE"),
          Variable("DJINN_TLS_SERVER_NAME")};
}

}  // namespace djinn
