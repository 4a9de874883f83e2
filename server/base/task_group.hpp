// The coroutines that an object runs on the thread of its event loop. They end with the object:
// destroying a coroutine ends what it waits for (Awaited, OnThread), and destroys what it holds.
#pragma once

#include <boost/asio/io_context.hpp>
#include <coroutine>
#include <list>
#include <memory>

#include "server/base/task.hpp"
#include "server/base/wait_memory.hpp"

namespace gpunbd::server {

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
