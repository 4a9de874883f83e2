// The command line: `gpunbd COMMAND ...`, and what each command is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config {

// Flags that may stand beside --config, and win over what the file says.
struct Overrides {
    std::vector<std::pair<std::string_view, std::string>> values;  // by key, checked

    // Also lets `pinned` grow to what the chunks need. To be called after each load of the file.
    void apply_to(Options& options) const;
};
struct ServeCommand {
    std::optional<std::string> config_file;  // --config: then `options` holds nothing of exports
    Options options;                         // from the other flags, `overrides` applied
    Overrides overrides;                     // for what is loaded from `config_file`
    std::optional<std::string> run;          // --run 'COMMAND': then no listener is opened
    bool exit_with_parent = false;           // --exit-with-parent
    bool core_dumps = false;                 // --core-dumps
    std::optional<std::string> pidfile;      // --pidfile FILE
};
struct KeepCommand {
    std::uint64_t max_restarts = 10;        // --max-restarts
    std::uint64_t within = 60;              // --within, in seconds
    std::uint64_t max_descriptors = 16384;  // --max-descriptors
    bool swap = false;                      // --swap
    std::vector<std::string> server = {};   // "serve" and what stands behind it, as it was given
};
struct KeptCommand {
    std::optional<std::string> config_file = {};  // FILE, of the server that is asked
    std::optional<std::string> socket = {};       // --socket; not with FILE
    bool json = false;                            // --json
    std::optional<std::string> drop = {};         // --drop NAME
};
struct AttachCommand {
    std::string uri;
    std::uint32_t device = 0;                        // the N of /dev/nbdN
    unsigned connections = 1;                        // --connections
    std::optional<std::uint64_t> timeout = {};       // --timeout, in seconds
    std::optional<std::uint64_t> dead_timeout = {};  // --dead-timeout, in seconds
    std::optional<std::uint32_t> block_size = {};    // --block-size
    bool swap = false;                               // --swap
    bool unit = false;                               // --systemd: print one, attach nothing
};
struct AttachListCommand {  // attach --list
    bool json = false;      // --json
};
struct DetachCommand {
    std::uint32_t device = 0;  // the N of /dev/nbdN
    bool force = false;        // --force
};
struct PingCommand {
    std::string uri;
    std::uint64_t timeout = 5;  // --timeout, in seconds
};
// Which server `status` and `top` ask: one of the two; neither: the only one that there is.
struct AskedServer {
    struct Url {
        std::string host;
        std::string port;
    };
    std::optional<std::string> socket = {};  // --socket
    std::optional<Url> url = {};             // --url
    std::optional<std::string> token = {};   // --token, with --url: a file
};
struct StatusCommand {
    AskedServer server;
    bool json = false;   // --json
    bool watch = false;  // --watch
};
struct TopCommand {
    AskedServer server;
};
struct DevicesCommand {
    bool calibrate = false;
};
// --who, and what that client shows in TLS: as it was given.
struct Question {
    std::string who;
    std::optional<std::string> tls_name = {};  // --tls-name
    std::optional<std::string> psk_user = {};  // --psk-user
};
struct CheckCommand {
    std::string file;
    std::optional<Question> question = {};
};

struct DoctorCommand {
    std::string_view topic = {};                  // one of the command's words; empty: all of them
    bool json = false;                            // --json
    std::optional<std::string> config_file = {};  // --config
};
struct TlsSetupCommand {
    std::string folder;
    std::vector<std::string> hosts;    // --host: names and numeric addresses of one server
    std::vector<std::string> clients;  // --client: names, each of which can be that of a folder
    std::vector<std::string> users;    // --psk: likewise
    int days = 730;                    // --days: certificates of servers and clients are valid
};

// Exactly one of the commands is set, or `exit_code` is: then `message`, newline included, has been
// made for standard output (exit_code 0: help, version, completions) or standard error (2: wrong
// usage).
struct CommandLine {
    std::optional<ServeCommand> serve;
    std::optional<KeepCommand> keep;
    std::optional<KeptCommand> kept;
    std::optional<AttachCommand> attach;
    std::optional<AttachListCommand> attach_list;
    std::optional<DetachCommand> detach;
    std::optional<PingCommand> ping;
    std::optional<StatusCommand> status;
    std::optional<TopCommand> top;
    std::optional<DevicesCommand> devices;
    std::optional<CheckCommand> check;
    std::optional<DoctorCommand> doctor;
    std::optional<TlsSetupCommand> tls_setup;
    std::optional<int> exit_code;
    std::string message;
};

CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace gpunbd::config
