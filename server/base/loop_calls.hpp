// Calls an object on the thread of its event loop, from any thread. The calls that have not begun
// when it is destroyed are destroyed uncalled.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <utility>

namespace gpunbd::server {

class LoopCalls {
 public:
    // `io` outlives this object, which is destroyed on the thread of `io`.
    explicit LoopCalls(boost::asio::io_context& io) : io_(io) {}

    // May outlive the object; its calls are dropped then. May be copied.
    class Poster {
     public:
        template <typename Call>
        void post(Call call) const {
            boost::asio::post(io_, [exists = exists_, call = std::move(call)]() mutable {
                if (!exists.expired()) call();
            });
        }

     private:
        friend class LoopCalls;
        Poster(boost::asio::io_context& io, std::weak_ptr<const bool> exists)
            : io_(io), exists_(std::move(exists)) {}

        boost::asio::io_context& io_;
        std::weak_ptr<const bool> exists_;
    };
    Poster poster() const { return Poster(io_, exists_); }
    template <typename Call>
    void post(Call call) const {
        poster().post(std::move(call));
    }

 private:
    boost::asio::io_context& io_;
    const std::shared_ptr<const bool> exists_ = std::make_shared<const bool>(true);
};

}  // namespace gpunbd::server
