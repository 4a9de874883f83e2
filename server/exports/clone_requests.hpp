// Requests for clones, from the workers to the thread that changes the list of exports.
#pragma once

#include <functional>
#include <string>

#include "storage/base/mutex.hpp"

namespace gpunbd::server {

struct CloneRequest {
    std::string template_name;
    std::string client;  // ExportTemplate::Client::id
    std::string peer;    // its peer_key()
    // Called once, on any thread, or destroyed uncalled if the server is ending. Empty text: the
    // clone is offered; otherwise the reason why not, as one line for the client.
    std::function<void(std::string why_not)> answer = {};
};

class CloneRequests {
 public:
    // Any thread. Answers at once if there is no receiver.
    void send(CloneRequest request) const;
    // `receive` must not block. Empty: none. After the return an earlier one is not called any
    // more.
    void set_receiver(std::function<void(CloneRequest)> receive);

 private:
    mutable Mutex mutex_;
    std::function<void(CloneRequest)> receive_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::server
