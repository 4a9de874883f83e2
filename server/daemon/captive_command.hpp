// `--run 'COMMAND'`: the server runs until one command ends. $uri and $unixsocket tell the command
// its address.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "server/base/command_group.hpp"
#include "server/base/foreground_terminal.hpp"

namespace gpunbd::server {

class CaptiveCommand {
 public:
    // Creates a private directory for the socket. Throws std::runtime_error on failure.
    CaptiveCommand();
    // Kills the processes of the command, unless it has ended.
    ~CaptiveCommand();
    CaptiveCommand(const CaptiveCommand&) = delete;
    CaptiveCommand& operator=(const CaptiveCommand&) = delete;

    const std::string& socket_path() const { return socket_path_; }
    // Starts `sh -c COMMAND`; `export_name`, and whether it needs TLS, is part of $uri. Throws
    // std::runtime_error.
    void start(const std::string& command, const std::string& export_name, bool tls = false);
    // Sends SIGTERM to the shell and all its child processes.
    void terminate() const;
    // Sends SIGKILL and waits. Returns the status that a shell would report.
    int kill();
    // Does not wait. Returns true once the command has ended, with the status that a shell would
    // report. If the terminal stops the command, this process stops as well until both are
    // continued.
    bool ended(int& exit_status);
    bool running() const { return pid_ > 0; }

 private:
    std::string directory_;
    std::string socket_path_;
    std::optional<CommandGroup> group_;
    ForegroundTerminal terminal_;
    pid_t pid_ = -1;
};

}  // namespace gpunbd::server
