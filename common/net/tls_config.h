// Reads the TLS settings of servers from their configuration, and those of
// programs from the environment.
#ifndef COMMON_NET_TLS_CONFIG_H_
#define COMMON_NET_TLS_CONFIG_H_

#include <string>

#include "common/config/config_reader.h"
#include "common/net/tls/tls_files.h"

namespace djinn {

// Reads the map under `key` of `root`:
//
//   tls:
//     certificate_file: server.crt
//     private_key_file: server.key
//     client_ca_file: ca.crt          # clients must show a certificate
//
// Notes CheckServerTls()'s errors.
ServerTls ReadServerTls(ConfigMap* root, absl::string_view key, bool insecure);

// Reads the map under `key` of `root`:
//
//   coordinator_tls:
//     ca_file: ca.crt
//     certificate_file: worker.crt
//     private_key_file: worker.key
//     server_name: coordinator.example.com
//
// Notes CheckChannelTls()'s errors.
ChannelTls ReadChannelTls(ConfigMap* root, absl::string_view key,
                          bool insecure);

// Notes CheckAddress()'s errors for the address under `key`.
void CheckConfigAddress(ConfigMap* root, absl::string_view key,
                        const std::string& address, bool other_hosts);

// Reads DJINN_TLS_CA_FILE, DJINN_TLS_CERTIFICATE_FILE,
// DJINN_TLS_PRIVATE_KEY_FILE and DJINN_TLS_SERVER_NAME.
ChannelTls ChannelTlsFromEnvironment();

// Reads where monitoring_server.h listens from a configuration.
struct MonitoringConfig {
  // Address to listen on. Empty: there is no server.
  std::string listen;
  bool insecure = false;
  // See MonitoringOptions. Not read from a configuration.
  bool stand_in = false;
};

// Reads the map under `monitoring`:
//
//   monitoring:
//     listen: 127.0.0.1:9464
//     insecure: false    # true allows `listen` to face other hosts, although
//                        # scrapes are never encrypted
MonitoringConfig ReadMonitoring(ConfigMap* root);

}  // namespace djinn

#endif  // COMMON_NET_TLS_CONFIG_H_
