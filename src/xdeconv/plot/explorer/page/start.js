/* Last: everything is defined. */

start();
