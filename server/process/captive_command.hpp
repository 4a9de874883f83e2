// `--run 'COMMAND'`: the server lives for one command, which finds it by $uri and $unixsocket.
#pragma once

#include <sys/types.h>

#include <string>

namespace gpunbd::server {

class CaptiveCommand {
 public:
    // Makes a private directory for the socket. Throws std::runtime_error where it cannot.
    CaptiveCommand();
    ~CaptiveCommand();
    CaptiveCommand(const CaptiveCommand&) = delete;
    CaptiveCommand& operator=(const CaptiveCommand&) = delete;

    const std::string& socket_path() const { return socket_path_; }
    // Starts `sh -c COMMAND`; `export_name` is part of $uri. Throws std::runtime_error.
    void start(const std::string& command, const std::string& export_name);
    void terminate() const;
    // Does not wait: true once it has ended, with the status a shell would report for it.
    bool ended(int& exit_status);
    bool running() const { return pid_ > 0; }

 private:
    std::string directory_;
    std::string socket_path_;
    pid_t pid_ = -1;
};

}  // namespace gpunbd::server
