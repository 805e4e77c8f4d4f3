// Prints the keys of the coordinator's and the worker's configuration, one a
// line: program, path, type, default, "required" or "optional". Tabs separate
// the fields. docs/reference/reference.py makes a page of them.
#include <iostream>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "coordinator/config/config.h"
#include "gpu_worker/config.h"

namespace djinn {
namespace {

template <typename Read>
void Print(const std::string& program, Read read) {
  std::vector<ConfigKey> keys, conditional;
  // The configuration that is made of the defaults is not valid, and not used.
  read(ConfigReader::ForKeys(/*present=*/false, &keys)).status().IgnoreError();
  read(ConfigReader::ForKeys(/*present=*/true, &conditional))
      .status()
      .IgnoreError();
  std::vector<std::string> known;
  for (const ConfigKey& key : keys) {
    std::cout << program << '\t' << key.path << '\t' << key.type << '\t'
              << key.fallback << '\t'
              << (key.required ? "required" : "optional") << '\n';
    known.push_back(key.path);
  }
  for (const ConfigKey& key : conditional) {
    bool printed = false;
    for (const std::string& path : known) printed = printed || path == key.path;
    // Without the key, the program does not use its default.
    if (!printed) {
      std::cout << program << '\t' << key.path << '\t' << key.type << "\t\t"
                << (key.required ? "required" : "optional") << '\n';
    }
  }
}

}  // namespace
}  // namespace djinn

int main() {
  djinn::Print("coordinator", djinn::coordinator::ReadConfig);
  djinn::Print("worker", djinn::worker::ReadWorkerConfig);
  return 0;
}
