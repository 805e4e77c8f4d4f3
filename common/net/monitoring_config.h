// Reads where monitoring_server.h listens from a configuration.
#ifndef COMMON_NET_MONITORING_CONFIG_H_
#define COMMON_NET_MONITORING_CONFIG_H_

#include <string>

#include "common/config/config_reader.h"

namespace djinn {

struct MonitoringConfig {
  // Address to listen on. Empty: there is no server.
  std::string listen;
  bool insecure = false;
};

// Reads the map under `monitoring`:
//
//   monitoring:
//     listen: 127.0.0.1:9464
//     insecure: false          # other hosts: it is never encrypted
MonitoringConfig ReadMonitoring(ConfigMap* root);

}  // namespace djinn

#endif  // COMMON_NET_MONITORING_CONFIG_H_
