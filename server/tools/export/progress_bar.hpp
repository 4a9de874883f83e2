// A line on the terminal with the progress of an operation of the server, until it is destroyed.
#pragma once

#include <string>
#include <thread>

#include "server/tools/status/admin_server.hpp"

namespace gpunbd::status {

class ProgressBar {
 public:
    // `what`, `of`: as in the progress of the status. Does nothing if standard error is no
    // terminal.
    ProgressBar(AdminServer server, std::string what, std::string of);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

 private:
    std::jthread thread_;
};

// "saving export 'a': 1 GiB of 4 GiB [#####---------------]"
std::string progress_line(const std::string& what, const std::string& of, std::uint64_t done,
                          std::uint64_t total);

}  // namespace gpunbd::status
