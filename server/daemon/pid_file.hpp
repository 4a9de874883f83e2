// --pidfile: a file with the process id, which exists while the server is ready.
#pragma once

#include <string>

#include "server/daemon/service.hpp"

namespace gpunbd::server {

class PidFile final : public Service {
 public:
    explicit PidFile(std::string path) : path_(std::move(path)) {}
    // Removes the file, unless another server has written it since.
    ~PidFile() override;
    PidFile(const PidFile&) = delete;
    PidFile& operator=(const PidFile&) = delete;

    // Writes a draft beside the file. Throws std::runtime_error if that fails.
    void open() override;
    // Renames the draft, so that a reader never sees a part of it. Throws std::runtime_error.
    void start() override;
    // The file stays until the successor replaces it.
    void hand_over() override { keep_ = true; }

 private:
    const std::string path_;
    std::string draft_;  // its path until start()
    bool published_ = false;
    bool keep_ = false;
};

}  // namespace gpunbd::server
