#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

#include "server/base/task.hpp"
#include "server/base/wait_memory.hpp"

namespace gpunbd::server {

// Counts its own existence, such as that of a coroutine.
class Counted {
 public:
    // `count` outlives this object.
    explicit Counted(std::size_t& count) : count_(count) { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

 private:
    std::size_t& count_;
};

// Calls an object on the thread of its event loop, from any thread. The calls that have not begun
// when it is destroyed are destroyed uncalled.
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

// `co_await OnThread(...)` calls a function on a thread of its own, and continues on the thread of
// the event loop. An exception of the function is thrown there.
class OnThread {
 public:
    using Work = std::function<void(const std::stop_token&)>;

    // `io` outlives this object, and runs until the function returns. `work` may use what the
    // waiting coroutine has: destroying that requests `stop`, and waits for the thread.
    OnThread(boost::asio::io_context& io, const char* name, std::stop_source stop,
             const Work& work);
    ~OnThread();
    OnThread(const OnThread&) = delete;
    OnThread& operator=(const OnThread&) = delete;

    // Awaitable, once.
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiting);
    void await_resume();

 private:
    const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> io_runs_;
    const char* const name_;
    std::stop_source stop_;
    const Work& work_;
    Awaited<std::exception_ptr> ended_;
    std::thread thread_;
};

// The coroutines that an object runs on the thread of its event loop. They end with the object:
// destroying a coroutine ends what it waits for (Awaited, OnThread), and destroys what it holds.
class TaskGroup {
 public:
    // `io` outlives this object.
    explicit TaskGroup(boost::asio::io_context& io) : io_(io) {}
    ~TaskGroup() { clear(); }
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;

    // Runs the task until it waits for the first time, and the rest later. An exception of the task
    // is thrown by the event loop.
    void start(Task<> task);
    // Destroys the coroutines that wait. Must not be called by a coroutine of this group.
    void clear();

 private:
    using Running = std::list<std::coroutine_handle<>>;
    struct Root;
    Root run(Task<> task, Running::iterator place, std::shared_ptr<WaitMemory> memory);

    boost::asio::io_context& io_;
    Running running_;
};

}  // namespace gpunbd::server
