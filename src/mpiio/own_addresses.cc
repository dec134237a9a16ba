#include "mpiio/own_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

namespace forebay::mpiio {

namespace {

// Empty for what other machines cannot use. (Addresses of one link mean nothing without the name
// that the link has on the other machine.)
std::string text_of(const ifaddrs& interface) {
  constexpr unsigned kUseful = IFF_UP | IFF_LOOPBACK;
  if (!interface.ifa_addr || (interface.ifa_flags & kUseful) != IFF_UP) return {};
  char text[INET6_ADDRSTRLEN] = "";
  if (interface.ifa_addr->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(interface.ifa_addr);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (interface.ifa_addr->sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&v6)) ::inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  return text;
}

}  // namespace

std::vector<std::string> own_addresses(size_t most) {
  std::vector<std::string> out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) == 0) {
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> free(all, ::freeifaddrs);
    for (const ifaddrs* i = all; i; i = i->ifa_next) {
      if (std::string text = text_of(*i); !text.empty()) out.push_back(std::move(text));
    }
  }
  std::stable_partition(out.begin(), out.end(),
                        [](const std::string& host) { return host.find(':') == host.npos; });
  out.resize(std::min(out.size(), most - 1));
  out.push_back("127.0.0.1");
  return out;
}

}  // namespace forebay::mpiio
