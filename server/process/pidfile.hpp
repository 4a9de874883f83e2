// --pidfile: the process id in a file, there from when the server is ready until it ends.
#pragma once

#include <string>

namespace gpunbd::server {

class Pidfile {
 public:
    // Makes sure that the file can be written. Throws std::runtime_error where it cannot.
    explicit Pidfile(std::string path);
    // Removes the file, unless another server has written it since.
    ~Pidfile();
    Pidfile(const Pidfile&) = delete;
    Pidfile& operator=(const Pidfile&) = delete;

    // Whoever sees the file sees all of it. Throws std::runtime_error.
    void publish();
    // It stays, until the next server writes it.
    void leave() { left_ = true; }

 private:
    const std::string path_;
    std::string draft_;  // its name until it is published
    bool left_ = false;
};

}  // namespace gpunbd::server
