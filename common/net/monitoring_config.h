// Where a configuration says that monitoring_server.h listens.
#ifndef COMMON_NET_MONITORING_CONFIG_H_
#define COMMON_NET_MONITORING_CONFIG_H_

#include <string>

#include "common/config/config_reader.h"

namespace djinn {

struct MonitoringConfig {
  // Empty: there is none.
  std::string listen;
  bool insecure = false;
};

// The map under `monitoring`:
//
//   monitoring:
//     listen: 127.0.0.1:9464
//     insecure: false          # other hosts: it is never encrypted
MonitoringConfig ReadMonitoring(ConfigMap* root);

}  // namespace djinn

#endif  // COMMON_NET_MONITORING_CONFIG_H_
