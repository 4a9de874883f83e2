// Boost.JSON, compiled into the program: not every distribution has its library.
#include <boost/json/src.hpp>
