// The addresses by which other machines may reach this one, as numeric text: those of its networks,
// IPv4 first, then loopback, for a machine without any. At most `most`, at least one. Some may lead
// nowhere, or elsewhere, from another machine (the bridge of a container runtime has the same
// address on each): whoever tries them must find out.
#pragma once

#include <string>
#include <vector>

namespace forebay::mpiio {

std::vector<std::string> own_addresses(size_t most);

}  // namespace forebay::mpiio
