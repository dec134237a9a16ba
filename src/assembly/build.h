// From configuration to parts: the only place that names backends, loops and transports. Stores are
// built by nesting, innermost first.
#pragma once

#include <memory>
#include <string>

#include "assembly/config.h"
#include "client/remote_store.h"
#include "core/clock.h"
#include "core/counters.h"
#include "server/server.h"
#include "store/store.h"
#include "transport/auth_key.h"

namespace forebay {

// What Stores refer to; owned by whoever builds, and outlives them.
struct Surroundings {
  SteadyClock clock;
  CounterSet counters;
};

Result<std::unique_ptr<Store>> build_store(const ExportConfig& config, Surroundings& around);

// A directory, for the use of this process alone: handles are good as long as the Store lives.
Result<std::unique_ptr<Store>> open_directory(const std::string& path, Surroundings& around);

ServerOptions server_options(const ServerConfig& config);
ExportOptions export_options(const ExportConfig& config);
// Where what the export's clients share is kept; the folder is made.
Result<StateOptions> state_options(const ServerConfig& config, const ExportConfig& exported,
                                   const std::string& run_dir);
// listen = ["unix", "tcp", ...] as addresses; "unix" is a socket in run_dir.
Result<std::vector<Address>> listen_addresses(const ServerConfig& config,
                                              const std::string& run_dir);

// The address of the server that the client's configuration means. Read anew from the run directory
// at every call, because a restarted server may have another port.
Result<Address> server_address(const Config& config);
// The real thing: an EpollLoop, and sockets; with so much memory shared with a server on this node,
// and a key to prove (null: none).
RemoteRuntime real_runtime(const AuthKeyRef& key, uint64_t shared_memory = 0, uint64_t lent = 0);
// The key in the file, null if none is named; an error says what is wrong with it.
Result<AuthKeyRef> load_key(const std::string& key_file);

// One control request (remote_store.h) to the server at the address, as the client's configuration
// has it.
Result<std::string> ask_server(const Config& config, const Address& address, std::string_view verb);

// The server's export as a Store; `program` is what the server's status shows. The error says what
// could not be reached.
Result<std::unique_ptr<RemoteStore>> connect(const Config& config, const std::string& program);

}  // namespace forebay
