// A session's wait for a clone that another thread makes. The session and the request may end in
// any order.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace gpunbd::server {

class CloneWait {
 public:
    // `wake` is called on the thread of `io` after the answer, unless this is destroyed before.
    // Created and destroyed on that thread.
    CloneWait(boost::asio::io_context& io, std::function<void()> wake);
    ~CloneWait();
    CloneWait(const CloneWait&) = delete;
    CloneWait& operator=(const CloneWait&) = delete;

    // For CloneRequest::answer. If the last copy is destroyed uncalled, the answer is that the
    // server is ending.
    std::function<void(std::string why_not)> answer() const;
    // The answer, on the thread of `io`. Nothing: there is none yet.
    const std::optional<std::string>& answered() const;

 private:
    struct State;
    struct Answer;
    const std::shared_ptr<State> state_;
};

}  // namespace gpunbd::server
